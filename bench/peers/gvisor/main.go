// The server of the comparison on gVisor's netstack.
//
// It takes Ethernet frames from one end of a veth pair by AF_PACKET, with the kernel's
// segmentation offload both ways, as gVisor's own sandbox does. Each connection has a goroutine
// that blocks. The protocol is described in common/src/job.rs, beside this folder.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// Bytes with which a connection begins.
	headerBytes = 9
	// The last byte that a client sends to a server that discards.
	mark = 1
	// Bytes of the largest block, and of what is read at a time.
	scratchBytes = 256 * 1024
	// The longest that the server sends, however long it is asked to.
	longest = 60 * time.Second
	// Writes between two looks at the clock.
	writesPerLook = 32
	// The largest packet that is handed to the kernel to be cut.
	gsoBytes = 65536
	// Bytes that may wait in the packet socket, each way.
	socketBytes = 4 << 20
	prefixBits  = 24
	nic         = 1
	// Connections that may wait to be accepted, as for gonet's listeners.
	backlog = 4096
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	if len(words) != 2 {
		return errors.New("usage: peer-gvisor DEVICE ADDRESS:PORT")
	}
	address, err := netip.ParseAddrPort(words[1])
	if err != nil || !address.Addr().Is4() {
		return fmt.Errorf("`%s` is no IPv4 ADDRESS:PORT", words[1])
	}
	device, err := net.InterfaceByName(words[0])
	if err != nil {
		return fmt.Errorf("device %s: %w", words[0], err)
	}
	netstack, err := newStack(device, tcpip.AddrFrom4(address.Addr().As4()))
	if err != nil {
		return err
	}
	local := tcpip.FullAddress{NIC: nic, Port: address.Port()}
	return listen(netstack, local)
}

// connection is gonet's, with the endpoint that it does not show: that has the options.
type connection struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
}

// listen serves each connection to a port on a goroutine. It does what gonet's listener does.
func listen(netstack *stack.Stack, local tcpip.FullAddress) error {
	var queue waiter.Queue
	listener, err := netstack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &queue)
	if err != nil {
		return fmt.Errorf("a socket: %v", err)
	}
	if err := listener.Bind(local); err != nil {
		return fmt.Errorf("binding: %v", err)
	}
	entry, acceptable := waiter.NewChannelEntry(waiter.ReadableEvents)
	queue.EventRegister(&entry)
	if err := listener.Listen(backlog); err != nil {
		return fmt.Errorf("listening: %v", err)
	}
	fmt.Println("ready")
	for {
		endpoint, events, err := listener.Accept(nil)
		if _, none := err.(*tcpip.ErrWouldBlock); none {
			<-acceptable
			continue
		}
		if err != nil {
			return fmt.Errorf("accepting: %v", err)
		}
		client := connection{gonet.NewTCPConn(events, endpoint), endpoint}
		go func() {
			// A connection that fails is its client's loss.
			_ = serve(client)
			client.Close()
		}()
	}
}

// newStack makes a stack that has the device and this address.
func newStack(device *net.Interface, address tcpip.Address) (*stack.Stack, error) {
	netstack := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	if err := netstack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack); err != nil {
		return nil, fmt.Errorf("SACK: %v", err)
	}
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	if err := netstack.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate); err != nil {
		return nil, fmt.Errorf("receive buffers that grow: %v", err)
	}
	descriptor, err := packetSocket(device)
	if err != nil {
		return nil, err
	}
	link, err := fdbased.New(&fdbased.Options{
		FDs:                []int{descriptor},
		MTU:                uint32(device.MTU),
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(device.HardwareAddr),
		GSOMaxSize:         gsoBytes,
		PacketDispatchMode: fdbased.RecvMMsg,
		TXChecksumOffload:  false,
		RXChecksumOffload:  true,
	})
	if err != nil {
		return nil, fmt.Errorf("the link: %w", err)
	}
	if err := netstack.CreateNIC(nic, link); err != nil {
		return nil, fmt.Errorf("the interface: %v", err)
	}
	own := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: address, PrefixLen: prefixBits},
	}
	if err := netstack.AddProtocolAddress(nic, own, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("the address: %v", err)
	}
	netstack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return netstack, nil
}

// packetSocket opens all frames of a device, each with the header that tells of offloads.
func packetSocket(device *net.Interface) (int, error) {
	// In the order of bytes of the network, whatever the machine's is.
	protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	descriptor, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		return 0, fmt.Errorf("a packet socket: %w", err)
	}
	for _, option := range []struct{ level, name, value int }{
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBytes},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBytes},
	} {
		if err := unix.SetsockoptInt(descriptor, option.level, option.name, option.value); err != nil {
			return 0, fmt.Errorf("option %d of the packet socket: %w", option.name, err)
		}
	}
	to := unix.SockaddrLinklayer{Protocol: protocol, Ifindex: device.Index}
	if err := unix.Bind(descriptor, &to); err != nil {
		return 0, fmt.Errorf("binding to %s: %w", device.Name, err)
	}
	return descriptor, nil
}

// serve does what one client asks for.
func serve(client connection) error {
	var asked [headerBytes]byte
	if _, err := io.ReadFull(client, asked[:]); err != nil {
		return err
	}
	if asked[0] == 'd' {
		return drain(client)
	}
	size := binary.BigEndian.Uint32(asked[1:])
	if size == 0 || size > scratchBytes {
		return fmt.Errorf("blocks of %d bytes: 1 to %d are possible", size, scratchBytes)
	}
	block := make([]byte, size)
	switch asked[0] {
	case 's':
		duration := time.Duration(binary.BigEndian.Uint32(asked[5:])) * time.Millisecond
		// Nagle's algorithm, which is off by default.
		client.endpoint.SocketOptions().SetDelayOption(true)
		return send(client, block, min(duration, longest))
	case 'a':
		return answer(client, block)
	}
	return fmt.Errorf("the client asks for job %d, which nobody knows", asked[0])
}

func drain(client connection) error {
	block := make([]byte, scratchBytes)
	for {
		count, err := client.Read(block)
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if count > 0 && block[count-1] == mark {
			if _, err := client.Write([]byte{mark}); err != nil {
				return err
			}
		}
	}
}

func send(client connection, block []byte, duration time.Duration) error {
	for begun := time.Now(); time.Since(begun) < duration; {
		for range writesPerLook {
			if _, err := client.Write(block); err != nil {
				return err
			}
		}
	}
	if err := client.CloseWrite(); err != nil {
		return err
	}
	return drain(client)
}

func answer(client connection, block []byte) error {
	for {
		if _, err := io.ReadFull(client, block); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if _, err := client.Write(block); err != nil {
			return err
		}
	}
}
