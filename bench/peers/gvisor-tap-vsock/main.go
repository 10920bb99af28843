// The command of the comparison behind gvisor-tap-vsock.
//
// The program runs a command in a user and a network namespace of its own, as an ordinary user. The
// namespace has a TAP device. This process, outside, reads frames from its descriptor and gives
// them to the module's virtual network. That is the shortest way that the module allows: one
// process, without the stream socket between its own programs gvproxy and gvforwarder.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"github.com/containers/gvisor-tap-vsock/pkg/types"
	"github.com/containers/gvisor-tap-vsock/pkg/virtualnetwork"
	"golang.org/x/sys/unix"
)

const (
	device     = "tap0"
	subnet     = "203.0.113.0/24"
	gateway    = "203.0.113.1"
	guest      = "203.0.113.2/24"
	gatewayMac = "5a:94:ef:e4:0c:dd"
	// The descriptor by which the inside hands its device over: the first of ExtraFiles.
	handover = 3
	// The word with which the program starts itself again.
	inside = "inside"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		status = 125
	}
	os.Exit(status)
}

func run(words []string) (int, error) {
	if len(words) == 1 && words[0] == "--version" {
		return 0, version()
	}
	if len(words) > 2 && words[0] == inside {
		return 125, runInside(words[1], words[2:])
	}
	if len(words) < 2 {
		return 125, errors.New("usage: peer-gvisor-tap-vsock MTU COMMAND... | --version")
	}
	mtu, err := strconv.Atoi(words[0])
	if err != nil {
		return 125, fmt.Errorf("the MTU: %w", err)
	}
	network, err := virtualnetwork.New(&types.Configuration{
		MTU:               mtu,
		Subnet:            subnet,
		GatewayIP:         gateway,
		GatewayMacAddress: gatewayMac,
	})
	if err != nil {
		return 125, fmt.Errorf("the virtual network: %w", err)
	}
	command, tap, err := start(words)
	if err != nil {
		return 125, err
	}
	go func() {
		// It ends with an error in any case, since the device has no end.
		fmt.Fprintln(os.Stderr, network.AcceptBess(context.Background(), tap))
	}()
	err = command.Wait()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return max(ended.ExitCode(), 1), nil
	}
	return 0, err
}

// version prints what the program was built of.
func version() error {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("the program was built without modules")
	}
	named := []string{built.GoVersion}
	for _, module := range built.Deps {
		switch module.Path {
		case "github.com/containers/gvisor-tap-vsock", "gvisor.dev/gvisor":
			named = append(named, path.Base(module.Path)+" "+module.Version)
		}
	}
	fmt.Println(strings.Join(named, ", "))
	return nil
}

// start starts the inside, and returns it with the TAP device that it has handed over.
func start(words []string) (*exec.Cmd, net.Conn, error) {
	// The inside is killed when the thread that has started it ends.
	runtime.LockOSThread()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("a pair of sockets: %w", err)
	}
	defer unix.Close(pair[0])
	theirs := os.NewFile(uintptr(pair[1]), "handover")
	defer theirs.Close()
	command := exec.Command("/proc/self/exe", append([]string{inside}, words...)...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.ExtraFiles = []*os.File{theirs}
	one := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: one(os.Getuid()),
		GidMappings: one(os.Getgid()),
		Pdeathsig:   syscall.SIGKILL,
	}
	if err := command.Start(); err != nil {
		return nil, nil, fmt.Errorf("the namespaces: %w", err)
	}
	theirs.Close()
	tap, err := receive(pair[0])
	if err != nil {
		return nil, nil, errors.Join(err, command.Process.Kill())
	}
	return command, tap, nil
}

// receive takes the TAP device from the inside.
func receive(socket int) (net.Conn, error) {
	space := make([]byte, unix.CmsgSpace(4))
	_, used, _, _, err := unix.Recvmsg(socket, make([]byte, 1), space, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("the device: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(space[:used])
	if err != nil || len(messages) != 1 {
		return nil, errors.New("the inside has ended without a device")
	}
	descriptors, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != 1 {
		return nil, errors.New("the inside has handed no device over")
	}
	if err := unix.SetNonblock(descriptors[0], true); err != nil {
		return nil, fmt.Errorf("the device: %w", err)
	}
	return frames{os.NewFile(uintptr(descriptors[0]), device)}, nil
}

// frames is a connection of which each read and each write is one frame.
type frames struct{ *os.File }

func (frames) LocalAddr() net.Addr  { return &net.UnixAddr{Name: device} }
func (frames) RemoteAddr() net.Addr { return &net.UnixAddr{Name: device} }

// runInside makes the device, hands it over, and becomes the command.
func runInside(mtu string, command []string) error {
	tap, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(device)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tap, unix.TUNSETIFF, request); err != nil {
		return fmt.Errorf("the device: %w", err)
	}
	for _, line := range []string{
		"link set lo up",
		"link set " + device + " mtu " + mtu + " up",
		"addr add " + guest + " dev " + device,
		"route add default via " + gateway,
	} {
		if said, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, said)
		}
	}
	if err := unix.Sendmsg(handover, []byte{1}, unix.UnixRights(tap), nil, 0); err != nil {
		return fmt.Errorf("handing the device over: %w", err)
	}
	unix.CloseOnExec(handover)
	program, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return syscall.Exec(program, command, os.Environ())
}
