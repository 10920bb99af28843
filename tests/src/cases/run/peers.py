"""The far host of calls.py: it prints what it has seen, a line for each connection.

    peers.py ADDRESS...      as root: the control port changes the rules of the packet filter

A line has the name of a call, and the outcome on this side. The process ends on the word of a
client, once each connection has been reported.
"""

import errno
import hashlib
import select
import socket
import struct
import subprocess
import sys
import threading

NAMES = """control echo reads answers_late ends_first ends_at_once resets answers_then_resets unread
watches late silent backlog both_ways port reset_at_once vanishes
closed drops prohibited no_route unreachable port_unreachable
udp_echo udp_second udp_other udp_port udp_header""".split()
# Ports of calls, by their names. Those of the third line have no socket.
PORTS = {name: 5000 + place for place, name in enumerate(NAMES)}
NO_SOCKET = NAMES[17:23]
# Seconds after which a wait has failed.
PATIENCE = 20
# The socket module lacks it.
IP_RECVTTL = 12
LARGE = 1 << 20

# Calls whose server's side is not reported: it may go on until the process ends.
QUIET = ("control", "silent", "vanishes")

HANDLERS = {}
THREADS = []
BACKLOG = []


def say(name, value):
    # One write, so that lines of several threads stay whole.
    sys.stdout.write(f"{name}: {value}\n")
    sys.stdout.flush()


def outcome(call, *args):
    """The result of a call, or the name of its error."""
    try:
        result = call(*args)
    except OSError as error:
        return socket_error(error)
    return digest(result) if isinstance(result, bytes) else str(result)


def socket_error(error):
    return errno.errorcode.get(error.errno, "timed out")


def digest(data):
    if len(data) <= 32:
        return repr(data)
    return f"{len(data)} bytes {hashlib.sha256(data).hexdigest()[:8]}"


def pattern(length):
    return (b"%07d\n" * 8 % tuple(range(8)) * (length // 64 + 1))[:length]


def read_all(s):
    """All that comes, and how it ends."""
    data = b""
    while True:
        try:
            part = s.recv(65536)
        except OSError as error:
            return f"{digest(data)}, {socket_error(error)}"
        if not part:
            return f"{digest(data)}, end"
        data += part


def events(s, wanted=0, seconds=PATIENCE):
    """The events of a poll. Errors and the end of both directions always wake it."""
    poll = select.poll()
    poll.register(s, wanted)
    found = poll.poll(seconds * 1000)
    flags = found[0][1] if found else 0
    names = ["IN", "PRI", "OUT", "ERR", "HUP", "RDHUP"]
    return "|".join(name for name in names if flags & getattr(select, "POLL" + name)) or "none"


def send_and_read(s):
    """Sends and reads at the same time. Returns what came."""

    def send():
        s.sendall(pattern(LARGE))
        s.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    said = read_all(s)
    sender.join()
    return said


def abort(s):
    """Closes with a reset."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def handler(function):
    HANDLERS[function.__name__] = function
    return function


@handler
def echo(s):
    while data := s.recv(65536):
        s.sendall(data)


def name_of(s):
    """The name under which a connection is reported. The client waits until it is known."""
    name = s.recv(20, socket.MSG_WAITALL).decode().strip()
    s.sendall(b"ok")
    return name


@handler
def reads(s):
    name = name_of(s)
    say(f"{name}, server", read_all(s))


@handler
def answers_late(s):
    said = read_all(s)
    s.sendall(pattern(LARGE))
    say("answers_late, server", said)


@handler
def ends_first(s):
    s.shutdown(socket.SHUT_WR)
    say("ends_first, server", read_all(s))


@handler
def ends_at_once(s):
    pass


@handler
def resets(s):
    s.recv(5, socket.MSG_WAITALL)
    abort(s)


@handler
def answers_then_resets(s):
    s.recv(5, socket.MSG_WAITALL)
    s.sendall(b"answer")
    abort(s)


@handler
def reset_at_once(s):
    abort(s)


@handler
def unread(s):
    s.recv(1, socket.MSG_PEEK)


@handler
def watches(s):
    name = name_of(s)
    s.recv(1)
    s.sendall(b"unread")
    say(f"{name}, server", read_all(s))


@handler
def late(s):
    before = read_all(s)
    first = outcome(s.send, b"late")
    seen = events(s)
    rest = [outcome(s.send, b"later"), outcome(s.send, b"later"), outcome(s.recv, 9)]
    say("late, server", ", ".join([before, first, seen] + rest))


@handler
def silent(s):
    # Nothing is read until the client has gone.
    events(s)


@handler
def both_ways(s):
    say("both_ways, server", send_and_read(s))


@handler
def port(s):
    s.sendall(str(s.getpeername()[1]).encode())


@handler
def vanishes(s):
    echo(s)


@handler
def control(s):
    word = s.recv(20).decode()
    if word == "accept":
        BACKLOG.append(LISTENERS["backlog"].accept())
    elif word == "vanish":
        rule = f"insert rule inet calls input tcp dport {PORTS['vanishes']} drop"
        subprocess.run(["nft"] + rule.split(), check=True)
    s.sendall(b"done")
    if word == "end":
        END.set()


def serve(listener, name):
    while True:
        s, _ = listener.accept()
        s.settimeout(PATIENCE)

        def run(s=s):
            try:
                HANDLERS[name](s)
            except OSError as error:
                if name not in QUIET:
                    say(f"{name}, failed", socket_error(error))
            finally:
                s.close()

        thread = threading.Thread(target=run, daemon=True)
        if name not in QUIET:
            THREADS.append(thread)
        thread.start()


def datagrams(s, name, other):
    while True:
        data, control, _, peer = s.recvmsg(65536, 999)
        if name == "udp_other":
            other.sendto(data, peer)
        elif name == "udp_port":
            s.sendto(str(peer[1]).encode(), peer)
        elif name == "udp_header":
            fields = sorted((kind, value[0]) for _, kind, value in control)
            s.sendto(repr(fields).encode(), peer)
        else:
            s.sendto(data, peer)


def background(function, *args):
    threading.Thread(target=function, args=args, daemon=True).start()


LISTENERS = {}
END = threading.Event()


def main():
    for name in NAMES:
        if name.startswith("udp") or name in NO_SOCKET:
            continue
        listener = socket.create_server(
            ("", PORTS[name]), family=socket.AF_INET6, dualstack_ipv6=True,
            backlog=0 if name == "backlog" else 100)
        LISTENERS[name] = listener
        if name != "backlog":
            background(serve, listener, name)
    for address in sys.argv[1:]:
        sockets = {}
        for name in NAMES:
            if name.startswith("udp"):
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                s = socket.socket(family, socket.SOCK_DGRAM)
                s.setsockopt(socket.SOL_IP, IP_RECVTTL, 1)
                s.setsockopt(socket.SOL_IP, socket.IP_RECVTOS, 1)
                s.bind((address, PORTS[name]))
                sockets[name] = s
        for name, s in sockets.items():
            background(datagrams, s, name, sockets["udp_second"])
    print("ready", flush=True)
    END.wait()
    for thread in THREADS:
        thread.join(PATIENCE)


if __name__ == "__main__":
    main()
