# Serves a namespace of this user as slirp4netns(1) does, and uses what comes with it.
# Arguments: the program, the address of an echo server, and a folder for the socket.
import json, os, socket, subprocess, sys, time

program, server, folder = sys.argv[1:]
processes = []


def start(words, **more):
    processes.append(subprocess.Popen(words, **more))
    return processes[-1]


def namespace():
    """A process in new user and network namespaces."""
    process = start(["unshare", "-Urn", "sh", "-c", "echo ready; exec sleep infinity"],
                    stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def inside(target, *words):
    enter = ["nsenter", "-t", str(target.pid), "-U", "-n", "--preserve-credentials"]
    return subprocess.run(enter + list(words), capture_output=True, text=True, timeout=30)


def attach(target, *options):
    """A gateway that is ready, and the descriptor that ends it."""
    (ready, report), (exit, hold) = os.pipe(), os.pipe()
    words = [program, "run", "--attach", "-r", str(report), "-e", str(exit), *options]
    gateway = start(words + [str(target.pid), "tap7"], pass_fds=[report, exit])
    os.close(report)
    os.close(exit)
    # The gateway closes its own, so the end comes as well.
    assert open(ready, "rb").read() == b"1"
    return gateway, hold


CLIENT = """
import socket
def ask(host, port):
    try:
        c = socket.create_connection((host, port), 10)
    except OSError as error:
        return error.strerror
    c.sendall(b'ahoy')
    return c.recv(9)
"""


def ask(target, host, port):
    ended = inside(target, "/usr/bin/python3", "-c", CLIENT + f"print(ask('{host}', {port}))")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def configured():
    target = namespace()
    gateway, hold = attach(target, "-c", "-6", "--mtu=9000", "--cidr=10.7.0.0/16",
                           "--enable-sandbox", "--enable-seccomp", "--disable-host-loopback")
    shown = inside(target, "ip", "addr").stdout
    for part in ["10.7.0.100/16", "fd00::100/64", "mtu 9000", "127.0.0.1/8"]:
        assert part in shown, shown
    assert ask(target, server, 7) == "b'ahoy'"
    # An address that the caller chose is served as well.
    inside(target, "ip", "addr", "flush", "dev", "tap7", "scope", "global")
    inside(target, "ip", "addr", "add", "10.7.9.9/16", "dev", "tap7")
    inside(target, "ip", "route", "add", "default", "via", "10.7.0.2")
    assert ask(target, server, 7) == "b'ahoy'"
    assert ask(target, "10.7.0.2", 7) == "Network is unreachable"
    os.close(hold)
    assert gateway.wait(30) == 0
    assert "tap7" not in inside(target, "ip", "link").stdout
    print("configured")


def request(path, value):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(value if isinstance(value, bytes) else json.dumps(value).encode())
    client.shutdown(socket.SHUT_WR)
    return json.loads(client.makefile().read())


ECHO = """
import socket
s = socket.create_server(('', 8080)); print('ready', flush=True)
c, _ = s.accept(); c.sendall(c.recv(9))
"""


def ports():
    target = namespace()
    path = folder + "/api.sock"
    gateway, hold = attach(target, "-c", "-a", path)
    enter = ["nsenter", "-t", str(target.pid), "-U", "-n", "--preserve-credentials"]
    echo = start(enter + ["/usr/bin/python3", "-c", ECHO], stdout=subprocess.PIPE)
    assert echo.stdout.readline() == b"ready\n"
    # A client that sends nothing delays no other.
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(path)
    add = {"proto": "tcp", "host_addr": "127.0.0.1", "host_port": 7080, "guest_port": 8080}
    added = request(path, {"execute": "add_hostfwd", "arguments": add})
    assert added == {"return": {"id": 1}}, added
    client = socket.create_connection(("127.0.0.1", 7080), 10)
    client.sendall(b"ahoy")
    assert client.recv(9) == b"ahoy"
    listed = request(path, {"execute": "list_hostfwd"})
    entry = {**add, "id": 1, "guest_addr": "10.0.2.100"}
    assert listed == {"return": {"entries": [entry]}}, listed
    remove = {"execute": "remove_hostfwd", "arguments": {"id": 1}}
    assert request(path, remove) == {"return": {}}
    for value, part in [
        (remove, "remove_hostfwd: no port has the id 1"),
        (b"{", "cannot parse JSON"),
        (b"{}", "no execute found"),
        ({"execute": "x"}, "unknown execute"),
        (b"x" * 5000, "too large message"),
        ({"execute": "add_hostfwd", "arguments": {**add, "host_port": 80}},
         "the port is below net.ipv4.ip_unprivileged_port_start"),
        ({"execute": "add_hostfwd", "arguments": {**add, "host_port": 0}}, "bad arguments.host_port"),
        ({"execute": "add_hostfwd", "arguments": {**add, "guest_addr": "10.0.2.7"}},
         "bad arguments.guest_addr: ports lead to 10.0.2.100 only"),
    ]:
        error = request(path, value)["error"]["desc"]
        assert error.startswith("bad request: ") and part in error, error
    gateway.terminate()
    assert gateway.wait(30) == 0
    print("ports")


def prepared():
    target = namespace()
    inside(target, "ip", "tuntap", "add", "tap7", "mode", "tap")
    inside(target, "ip", "link", "set", "tap7", "up")
    inside(target, "ip", "link", "add", "veth7", "type", "veth")
    gateway, hold = attach(target)
    # As rootlesskit goes on.
    inside(target, "ip", "addr", "add", "10.0.2.100/24", "dev", "tap7")
    inside(target, "ip", "route", "add", "default", "via", "10.0.2.2")
    assert ask(target, server, 7) == "b'ahoy'"
    for name, part in [("tap7", "another program uses tap7"), ("veth7", "is no TUN or TAP")]:
        second = subprocess.run([program, "run", "--attach", "-6", str(target.pid), name],
                                capture_output=True, text=True, timeout=30)
        assert second.returncode == 1 and part in second.stderr, second
        assert "--enable-ipv6 needs --configure" in second.stderr, second
    inside(target, "ip", "link", "del", "tap7")
    assert gateway.wait(30) == 1
    print("prepared")


IDLE = """
import socket, time
c = socket.create_connection(('%s', 7), 10)
c.sendall(b'ahoy'); c.recv(9); print('ready', flush=True)
time.sleep(600)
"""

FULL = """
import select, socket, time
c = socket.create_connection(('10.0.2.2', %d), 10)
c.setblocking(False)
while select.select([], [c], [], 1)[1]:
    c.send(bytes(1 << 16))
print('ready', flush=True)
time.sleep(600)
"""


def program_inside(target, text):
    """A program that is ready, and goes on."""
    enter = ["nsenter", "-t", str(target.pid), "-U", "-n", "--preserve-credentials"]
    inner = start(enter + ["/usr/bin/python3", "-c", text], stdout=subprocess.PIPE)
    assert inner.stdout.readline() == b"ready\n"


def stopped():
    # Idle connections end with the gateway, at once: it waits 30 s for those with data.
    for end in [lambda gateway, hold: os.close(hold), lambda gateway, hold: gateway.terminate()]:
        target = namespace()
        gateway, hold = attach(target, "-c")
        program_inside(target, IDLE % server)
        end(gateway, hold)
        assert gateway.wait(20) == 0
    for is_read in [True, False]:
        target = namespace()
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        gateway, hold = attach(target, "-c", "--host-loopback", "-p", "7081:8081")
        program_inside(target, FULL % port)
        slow, _ = listener.accept()
        gateway.terminate()
        # Its ports are closed first.
        refused = False
        while not refused:
            try:
                socket.create_connection(("127.0.0.1", 7081), 10).close()
            except ConnectionError as error:
                refused = isinstance(error, ConnectionRefusedError)
        assert ask(target, "10.0.2.2", port) == "Network is unreachable"
        assert gateway.poll() is None
        if not is_read:
            gateway.terminate()
            assert gateway.wait(20) == 128 + 15
            continue
        # The server gets the data that was sent, and no end of the stream.
        count = 0
        try:
            while part := slow.recv(1 << 20):
                count += len(part)
            assert False, "the cut seemed to be the end"
        except ConnectionResetError:
            assert count >= 1 << 16, count
        assert gateway.wait(20) == 0
    print("stopped")


def hostile():
    target = namespace()
    gateway, hold = attach(target, "-c", "-6", "--mtu=1500")
    large = f"import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);" \
            f"s.sendto(bytes(60000), ('{server}', 7))"
    for words in [
        ["ip", "link", "set", "tap7", "mtu", "65000"],
        ["/usr/bin/python3", "-c", large],
        ["ip", "link", "set", "tap7", "mtu", "576"],
        ["/usr/bin/python3", "-c", large],
        ["ip", "link", "set", "tap7", "mtu", "65000"],
        ["ip", "addr", "flush", "dev", "tap7"],
        ["ip", "link", "set", "tap7", "down"],
        ["ip", "link", "set", "tap7", "up"],
        ["ip", "addr", "add", "10.0.2.100/24", "dev", "tap7"],
        ["ip", "route", "add", "default", "via", "10.0.2.2"],
    ]:
        ended = inside(target, *words)
        assert ended.returncode == 0, (words, ended)
    assert ask(target, server, 7) == "b'ahoy'"
    os.close(hold)
    assert gateway.wait(20) == 0
    print("hostile")


def wrong():
    path = folder + "/file"
    open(path, "w").close()
    for words, status, part in [
        (["-r", "99", "1"], 1, "no descriptor has the number 99"),
        (["999999999"], 1, "/proc/999999999/ns/user: its process must exist"),
        (["--netns-type=path", path], 1, "cannot enter the network namespace"),
        (["/some/path"], 2, "--netns-type=path"),
        (["-a", path, str(os.getpid())], 1, "cannot open the API socket"),
        (["--cidr", "10.0.2.1/24", "1"], 2, "network address like 10.0.2.0/24"),
        (["--macaddress", "02:00:00:00:00:01", "1"], 2, "TUN device"),
    ]:
        ended = subprocess.run([program, "run", "--attach", *words], capture_output=True,
                               text=True, timeout=30)
        assert ended.returncode == status and part in ended.stderr, (words, ended)
    print("wrong")


try:
    configured()
    ports()
    prepared()
    stopped()
    hostile()
    wrong()
finally:
    for process in processes:
        process.kill()
        process.wait()
