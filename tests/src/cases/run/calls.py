"""Calls of a program, and how each of them ends: a line of its name and its outcome.

    calls.py            all calls, with peers.py at the far host
    calls.py visit HOST those that a published port sees, with peers.py behind it

The test runs it with and without `plimsoll run` and compares the lines. Nothing is printed that
depends on time or chance.
"""

import asyncio
import os
import select
import socket
import struct
import sys

from peers import (
    LARGE, PATIENCE, PORTS, abort, digest, events, outcome, pattern, read_all, say, send_and_read,
    socket_error)

FAR = {"v4": "198.51.100.2", "v6": "2001:db8:1::2"}
SECOND = "198.51.100.3"
NEAR = "198.51.100.1"
FAMILY = {"v4": socket.AF_INET, "v6": socket.AF_INET6}
# Addresses that no host has. The first has no route; a router answers for the second to fifth, if
# at all; the others have a route of the near host that refuses.
NOWHERE = {
    "v4": {
        "no route": "203.0.113.1",
        "unreachable beyond": "203.0.113.65",
        "prohibited beyond": "203.0.113.66",
        "dropped beyond": "203.0.113.67",
        "no route beyond": "203.0.113.68",
        "unreachable": "203.0.113.33",
        "prohibited": "203.0.113.34",
        "dropped": "203.0.113.35",
        "no neighbour": "203.0.113.99",
    },
    "v6": {
        "no route": "2001:db8:f::1",
        "unreachable beyond": "2001:db8:2::65",
        "prohibited beyond": "2001:db8:2::66",
        "dropped beyond": "2001:db8:2::67",
        "no route beyond": "2001:db8:2::68",
        "unreachable": "2001:db8:3::33",
        "prohibited": "2001:db8:3::34",
        "dropped": "2001:db8:3::35",
    },
}
# Seconds after which a call without an answer is given up.
SHORT = 0.2


def stream(version="v4"):
    s = socket.socket(FAMILY[version], socket.SOCK_STREAM)
    s.settimeout(PATIENCE)
    return s


def connected(name, version="v4"):
    s = stream(version)
    s.connect((FAR[version], PORTS[name]))
    return s


def datagram(version="v4"):
    s = socket.socket(FAMILY[version], socket.SOCK_DGRAM)
    s.settimeout(PATIENCE)
    return s


def control(word):
    with connected("control") as s:
        s.sendall(word.encode())
        s.recv(9)


def connects(version):
    """A blocking connect, for each way in which it can fail."""
    closed = ["closed", "prohibited", "no_route", "unreachable", "port_unreachable", "drops"]
    targets = {f"port {name}": (FAR[version], PORTS[name]) for name in closed}
    targets |= {f"address {name}": (to, 9) for name, to in NOWHERE[version].items()}
    for name, to in targets.items():
        with stream(version) as s:
            s.settimeout(SHORT if "drop" in name else PATIENCE)
            say(f"{version} connect, {name}", outcome(s.connect, to))
    # A limit of answers each second would show here.
    for name in ["closed", "unreachable"]:
        found = set()
        for _ in range(30):
            with stream(version) as s:
                found.add(outcome(s.connect, (FAR[version], PORTS[name])))
        say(f"{version} connect 30 times, port {name}", sorted(found))


def times_out():
    """A connect that the kernel gives up."""
    with stream() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, 1)
        say("connect with one retransmission", outcome(s.connect, (FAR["v4"], PORTS["drops"])))


def own_address():
    with stream() as s:
        say("connect, the host's own address", outcome(s.connect, (NEAR, 9)))
    with stream() as s:
        say("connect, its own loopback", outcome(s.connect, ("127.0.0.1", 9)))


def nonblocking(version):
    far = FAR[version]
    targets = {
        "open": (far, PORTS["silent"]),
        "closed": (far, PORTS["closed"]),
        "unreachable": (far, PORTS["unreachable"]),
        "prohibited": (far, PORTS["prohibited"]),
        "drops": (far, PORTS["drops"]),
    }
    for name, to in targets.items():
        name = f"{version} nonblocking connect, {name}"
        seconds = SHORT if name.endswith("drops") else PATIENCE
        with stream(version) as s:
            s.setblocking(False)
            say(name, outcome(s.connect, to))
            say(f"{name}, poll", events(s, select.POLLIN | select.POLLOUT, seconds))
            s_error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            say(f"{name}, SO_ERROR", socket_error(OSError(s_error, "")) if s_error else 0)
            if name.endswith("drops") or name.endswith("open"):
                say(f"{name}, again", outcome(s.connect, to))
        with stream(version) as s, select.epoll() as epoll:
            s.setblocking(False)
            outcome(s.connect, to)
            epoll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP)
            say(f"{name}, epoll", [mask for _, mask in epoll.poll(seconds)])
            say(f"{name}, send", outcome(s.send, b"x"))


def resets(version):
    """What the calls return after a reset in the middle."""
    for order in ["read", "write", "error"]:
        name = f"{version} reset, {order} first"
        with connected("resets", version) as s:
            s.sendall(b"12345")
            events(s)
            say(f"{name}, poll", events(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP))
            if order == "error":
                error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                say(f"{name}, SO_ERROR", socket_error(OSError(error, "")))
            calls = [(s.recv, 9), (s.send, b"x")]
            calls = calls[::-1] if order == "write" else calls
            for call, word in calls + calls:
                say(f"{name}, {call.__name__}", outcome(call, word))
            say(f"{name}, getpeername", outcome(s.getpeername))
    with connected("resets", version) as s:
        s.sendall(b"12345")
        say(f"{version} reset while it reads", outcome(s.recv, 9))
    with connected("answers_then_resets", version) as s:
        s.sendall(b"12345")
        events(s)
        for _ in range(3):
            say(f"{version} reset after an answer", outcome(s.recv, 99))
    with stream(version) as s:
        # The reset may be there before the call that connects returns.
        said = outcome(s.connect, (FAR[version], PORTS["reset_at_once"]))
        say(f"{version} reset at once", outcome(s.recv, 99) if said == "None" else said)


def error_of_writes(s):
    """Writes until that fails."""
    while True:
        try:
            s.send(bytes(65536))
        except OSError as error:
            return socket_error(error)


def writes_until_reset():
    """A program that only writes sees the reset as an error of a write."""
    with connected("resets") as s:
        found = error_of_writes(s)
        say("write until the reset", found in ("ECONNRESET", "EPIPE"))


def half_closes(version):
    with connected("answers_late", version) as s:
        s.sendall(pattern(LARGE))
        s.shutdown(socket.SHUT_WR)
        say(f"{version} client ends first, send", outcome(s.send, b"x"))
        say(f"{version} client ends first", read_all(s))
        say(f"{version} client ends first, recv", outcome(s.recv, 9))
    with connected("ends_first", version) as s:
        say(f"{version} server ends first", outcome(s.recv, 9))
        say(f"{version} server ends first, poll",
            events(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP))
        s.sendall(pattern(LARGE))
        say(f"{version} server ends first, recv", outcome(s.recv, 9))
    with connected("both_ways", version) as s:
        say(f"{version} both ways at once", send_and_read(s))
        await_closed(s)
        say(f"{version} both have ended, poll", events(s, select.POLLIN | select.POLLOUT))
        say(f"{version} both have ended, shutdown", outcome(s.shutdown, socket.SHUT_RDWR))
    with connected("ends_at_once", version) as s:
        say(f"{version} server ends at once", outcome(s.recv, 9))
        # The server has closed both directions: the first write is answered with a reset.
        say(f"{version} server has closed, first send", outcome(s.send, b"x"))
        say(f"{version} server has closed, poll", events(s))
        say(f"{version} server has closed, second send", outcome(s.send, b"x"))
        say(f"{version} server has closed, recv", outcome(s.recv, 9))


def named(name, handler):
    """A connection whose server reports under this name."""
    s = connected(handler)
    s.sendall(name.ljust(20).encode())
    s.recv(2)
    return s


def ends_of_the_client():
    """How the client's way to end looks at the server."""
    s = named("close", "reads")
    s.sendall(pattern(99))
    s.close()
    abort(named("close with a reset", "reads"))
    s = named("data before a reset", "reads")
    s.sendall(pattern(99))
    abort(s)
    s = named("shutdown, close", "reads")
    s.shutdown(socket.SHUT_WR)
    s.close()
    with named("small writes", "reads") as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(2000):
            s.send(pattern(1 + place % 7))
    s = named("close with unread", "watches")
    s.sendall(b"x")
    s.recv(1, socket.MSG_PEEK)
    s.close()
    child = os.fork()
    if child == 0:
        s = named("exit", "reads")
        s.sendall(pattern(999))
        os._exit(0)
    os.waitpid(child, 0)
    with named("urgent", "reads") as s:
        s.sendall(b"abc")
        s.send(b"!", socket.MSG_OOB)
        s.sendall(b"def")


def unread_at_the_server():
    with connected("unread") as s:
        s.sendall(b"1234567890")
        say("server closes with unread data, poll", events(s))
        say("server closes with unread data", outcome(s.recv, 9))


def late():
    s = connected("late")
    s.sendall(b"early")
    s.close()


def silent_server():
    with connected("silent") as s:
        s.settimeout(SHORT)
        say("silent server, settimeout", outcome(s.recv, 9))
        say("silent server, poll", events(s, select.POLLIN, SHORT))
        s.settimeout(None)
        wait = struct.pack("ll", 0, 200_000)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, wait)
        say("silent server, SO_RCVTIMEO", outcome(s.recv, 9))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, wait)
        found = error_of_writes(s)
        say("silent server, SO_SNDTIMEO", found)
        say("silent server, poll when full", events(s, select.POLLOUT, SHORT))
        abort(s)


def vanished_server():
    with connected("vanishes") as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 500)
        s.sendall(b"there?")
        s.recv(6, socket.MSG_WAITALL)
        control("vanish")
        s.sendall(b"gone?")
        s.settimeout(3)
        say("vanished server, TCP_USER_TIMEOUT", outcome(s.recv, 9))
        # Otherwise data would be left that `run` waits for.
        abort(s)


def full_backlog():
    to = (FAR["v4"], PORTS["backlog"])
    with connected("backlog"), stream() as s, stream() as late:
        s.setblocking(False)
        outcome(s.connect, to)
        say("full backlog, poll", events(s, select.POLLOUT, SHORT))
        control("accept")
        say("full backlog, poll once there is room", events(s, select.POLLOUT))
        say("full backlog, SO_ERROR", s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        late.settimeout(SHORT)
        say("full backlog, connect", outcome(late.connect, to))


def await_closed(s):
    """Waits until the last acknowledgement has come, so that the port is free."""
    with select.epoll() as epoll:
        epoll.register(s, select.EPOLLHUP | select.EPOLLET)
        # The first byte of TCP_INFO is the state; 7 is closed.
        while s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b"\x07":
            epoll.poll(PATIENCE)


def ports_again():
    """The same source port for one connection after the other."""
    for handler in ["ends_at_once", "echo"]:
        for place in range(3):
            with stream() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("", 41000 + len(handler)))
                name = f"one port, {handler}, {place}"
                said = outcome(s.connect, (FAR["v4"], PORTS[handler]))
                say(name, said)
                if said == "None" and handler == "ends_at_once":
                    say(f"{name}, recv", outcome(s.recv, 9))
                    s.shutdown(socket.SHUT_WR)
                    await_closed(s)
    # Closed with a reset, a connection leaves nothing behind.
    for place in range(3):
        s = stream()
        s.bind(("", 41100))
        say(f"one port, reset, {place}", outcome(s.connect, (FAR["v4"], PORTS["echo"])))
        abort(s)


def names(version):
    with connected("port", version) as s:
        address, port = s.getsockname()[:2]
        say(f"{version} getpeername", s.getpeername()[:2])
        say(f"{version} getsockname", address)
        say(f"{version} server sees the client's port", s.recv(9).decode() == str(port))


async def eyeballs(name):
    port = PORTS["echo"]
    reader, writer = await asyncio.open_connection(name, port, happy_eyeballs_delay=0.1)
    winner = writer.get_extra_info("peername")[0]
    writer.write(b"hello")
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return f"{winner} {answer}"


def happy_eyeballs():
    """Names with an address that fails and one that works."""
    for name in ["six-refused", "six-dropped", "six-unreachable", "six-no-route", "four-dropped"]:
        try:
            said = asyncio.run(asyncio.wait_for(eyeballs(f"{name}.test"), PATIENCE))
        except OSError as error:
            said = socket_error(error)
        say(f"happy eyeballs, {name}", said)
    for name in ["six-refused", "six-unreachable", "six-no-route"]:
        s = socket.create_connection((f"{name}.test", PORTS["echo"]), PATIENCE)
        say(f"one address after the other, {name}", s.getpeername()[0])
        s.close()
    found = socket.getaddrinfo("both.test", 80, type=socket.SOCK_STREAM)
    say("order of addresses of a name", [entry[4][0] for entry in found])


def udp_lengths(version):
    far = (FAR[version], PORTS["udp_echo"])
    longest = 65507 if version == "v4" else 65527
    with datagram(version) as s:
        s.settimeout(3)
        s.connect(far)
        for length in [0, 1, 1472, 1473, 9000, longest - 40, longest]:
            data = pattern(length)
            name = f"{version} datagram of {length}"
            say(f"{name}, send", outcome(s.send, data))
            say(f"{name}, same", outcome(s.recv, 65536) == digest(data))
        say(f"{version} datagram of {longest + 1}", outcome(s.send, bytes(longest + 1)))
        if version == "v4":
            # IP_MTU_DISCOVER, IP_PMTUDISC_DO
            s.setsockopt(socket.SOL_IP, 10, 2)
            say("v4 datagram above the MTU", outcome(s.send, bytes(1473)))
            say("v4 datagram of the MTU", outcome(s.send, bytes(1472)))


def udp_errors(version):
    for name in ["closed", "prohibited", "no_route", "unreachable"]:
        key = f"{version} datagram, port {name}"
        seconds = 2 if name in ("closed", "prohibited") else SHORT
        with datagram(version) as s:
            s.settimeout(seconds)
            s.connect((FAR[version], PORTS[name]))
            for first in [s.recv, s.send]:
                say(f"{key}, send", outcome(s.send, b"x"))
                say(f"{key}, poll", events(s, select.POLLIN, seconds))
                if seconds == 2:
                    word = 9 if first == s.recv else b"x"
                    say(f"{key}, {first.__name__} with the error", outcome(first, word))
            error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            say(f"{key}, SO_ERROR", error)
        with datagram(version) as s:
            s.settimeout(SHORT)
            s.sendto(b"x", (FAR[version], PORTS[name]))
            say(f"{key}, not connected", outcome(s.recv, 9))
    for name in ["no route", "unreachable", "prohibited", "dropped", "unreachable beyond",
                 "prohibited beyond"]:
        with datagram(version) as s:
            to = (NOWHERE[version][name], 9)
            say(f"{version} datagram to {name}", outcome(s.sendto, b"x", to))
            say(f"{version} datagram to {name}, connect", outcome(s.connect, to))


def udp_error_queue():
    """The ICMP error itself, with IP_RECVERR."""
    for name in ["closed", "unreachable", "prohibited", "no_route"]:
        with datagram() as s:
            s.setsockopt(socket.SOL_IP, 11, 1)
            s.sendto(b"lost", (FAR["v4"], PORTS[name]))
            if events(s, 0, 1) == "none":
                say(f"error queue, port {name}", "empty")
                continue
            data, control, _, to = s.recvmsg(99, 999, socket.MSG_ERRQUEUE)
            number, origin, kind, code = struct.unpack("IBBB", control[0][2][:7])
            offender = socket.inet_ntoa(control[0][2][20:24])
            say(f"error queue, port {name}",
                f"{socket_error(OSError(number, ''))} origin {origin} type {kind} code {code} "
                f"from {offender} for {data} to {to[0]}")


def udp_peers():
    far, second = FAR["v4"], SECOND
    peers = [(far, PORTS["udp_echo"]), (far, PORTS["udp_second"]), (second, PORTS["udp_echo"])]
    with datagram() as s:
        for peer in peers:
            s.sendto(repr(peer).encode(), peer)
        found = {peer: data == repr(peer).encode() for data, peer in (s.recvfrom(99) for _ in peers)}
        say("three peers of one socket", sorted(found.items()))
        seen = set()
        for peer in [(far, PORTS["udp_port"]), (second, PORTS["udp_port"])]:
            s.sendto(b"port?", peer)
            seen.add(int(s.recv(9)))
        say("two peers see one port", len(seen) == 1)
    with datagram() as s:
        s.bind(("", 42000))
        s.sendto(b"port?", (far, PORTS["udp_port"]))
        say("a bound socket's port", s.recv(9))
    with datagram() as s:
        s.settimeout(1)
        s.sendto(b"hello", (far, PORTS["udp_other"]))
        said = outcome(s.recvfrom, 99)
        say("an answer from another port", said)
        s.sendto(b"hello", (far, PORTS["udp_second"]))
        s.recv(9)
        s.sendto(b"hello", (far, PORTS["udp_other"]))
        say("an answer from another port that is known", outcome(s.recvfrom, 99))
    with datagram() as s:
        for peer in peers:
            s.connect(peer)
            s.send(b"hello")
            say(f"connected to another peer, {peer}", outcome(s.recvfrom, 99))


def header():
    with datagram() as s:
        s.setsockopt(socket.SOL_IP, socket.IP_TTL, 33)
        s.setsockopt(socket.SOL_IP, socket.IP_TOS, 0x48)
        s.sendto(b"header?", (FAR["v4"], PORTS["udp_header"]))
        say("TOS and TTL at the server", s.recv(99).decode())


def groups():
    with datagram() as s:
        say("broadcast without the option", outcome(s.sendto, b"x", ("255.255.255.255", 9)))
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        say("broadcast", outcome(s.sendto, b"x", ("255.255.255.255", 9)))
        say("group", outcome(s.sendto, b"x", ("224.0.0.251", 9)))
    with stream() as s:
        say("connect to a group", outcome(s.connect, ("224.0.0.251", 9)))


def visit(host):
    """What the visitor of a published port sees, and its server."""
    FAR["v4"] = host
    resets("v4")
    half_closes("v4")
    ends_of_the_client()
    unread_at_the_server()
    late()
    with connected("port") as s:
        say("server sees the client's port", s.recv(9).decode() == str(s.getsockname()[1]))
    with stream() as s:
        said = outcome(s.connect, (host, PORTS["closed"]))
        say("nothing listens", said if said != "None" else f"connected, {outcome(s.recv, 9)}")
    control("end")


def main():
    if sys.argv[1:2] == ["visit"]:
        return visit(sys.argv[2])
    for version in ["v4", "v6"]:
        connects(version)
        nonblocking(version)
        resets(version)
        half_closes(version)
        names(version)
        udp_lengths(version)
        udp_errors(version)
    for call in [
            times_out, own_address, writes_until_reset, ends_of_the_client, unread_at_the_server,
            late, silent_server, vanished_server, full_backlog, ports_again, happy_eyeballs,
            udp_error_queue, udp_peers, header, groups]:
        call()
    control("end")


if __name__ == "__main__":
    main()
