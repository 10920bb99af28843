"""Small programs on the kernel's sockets, each with one habit that a capture must show.

    programs.py serve SCRIPT ROUNDS [options]     accepts one connection and plays the server
    programs.py connect SCRIPT ROUNDS [options]   connects and plays the client
    programs.py fail ADDRESS ROUNDS               connects in vain

Some habits are of connecting and closing: see --help.

A script is a list of steps that both ends know, separated by commas:

    c100        the client writes 100 bytes, and the server reads them
    s1400x50    the server makes 50 writes of 1400 bytes, and the client reads them all
    C40         the client waits 40 ms; S20-120 the server waits 20 to 120 ms

Writes are not gathered: each is a call of its own.
"""

import argparse
import contextlib
import random
import re
import socket
import sys
import time

ADDRESS = ("198.51.100.2", 7777)
STEP = re.compile(r"([csCS])(\d+)(?:-(\d+))?(?:x(\d+))?$")
# Nothing here takes longer, in seconds.
PATIENCE = 60


def steps(script):
    for word in script.split(","):
        found = STEP.match(word)
        if not found:
            sys.exit(f"{word}: a step is c100, s1400x50, C40 or S20-120")
        letter, low, high, times = found.groups()
        yield letter, int(low), int(high or low), int(times or 1)


def read(stream, length, args):
    while length > 0:
        if args.pause:
            time.sleep(args.pause / 1000)
        try:
            data = stream.recv(min(length, args.chunk))
        except TimeoutError:
            sys.exit(0 if args.patience < PATIENCE else "nothing came")
        if not data:
            sys.exit("the other end closed the connection early")
        length -= len(data)


def play(stream, me, args):
    dice = random.Random(args.seed)
    for _ in range(args.rounds):
        for letter, low, high, times in steps(args.script):
            # Both ends throw, so that the dice stay equal.
            drawn = dice.uniform(low, high)
            if letter.isupper():
                if letter.lower() == me:
                    time.sleep(drawn / 1000)
            elif letter == me:
                for _ in range(times):
                    stream.sendall(b"x" * low)
                    if args.gap:
                        time.sleep(args.gap / 1000)
            else:
                read(stream, low * times, args)


def options(stream, args):
    stream.settimeout(args.patience)
    if args.rcvbuf:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, args.rcvbuf)
    if args.nodelay:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def serve(args):
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        options(listener, args)
        listener.bind(ADDRESS)
        listener.listen(args.backlog)
        print("ready", flush=True)
        time.sleep(args.late)
        for _ in range(args.fill):
            listener.accept()
        stream, _ = listener.accept()
        with stream:
            options(stream, args)
            play(stream, "s", args)
            if args.leave:
                # What has come by now is never read.
                time.sleep(0.2)
                return
            if args.script.split(",")[-1].startswith("s"):
                # The last bytes are under way: the client closes first.
                stream.recv(1)


def connect(args):
    fillers = [socket.socket() for _ in range(args.fill)]
    for filler in fillers:
        # They take the places in the server's queue, before or together with the one that talks.
        filler.setblocking(not args.together)
        filler.connect_ex(ADDRESS)
    with socket.socket() as stream:
        options(stream, args)
        stream.connect(ADDRESS)
        play(stream, "c", args)
        if args.extra:
            stream.sendall(b"x" * args.extra)
            with contextlib.suppress(ConnectionResetError):
                stream.recv(1)


def fail(args):
    """Connects again and again where nobody accepts."""
    for _ in range(args.rounds):
        with socket.socket() as stream:
            try:
                stream.connect((args.script, ADDRESS[1]))
            except OSError:
                continue
            sys.exit("the connection was accepted")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("end", choices=["serve", "connect", "fail"])
    parser.add_argument("script")
    parser.add_argument("rounds", type=int)
    parser.add_argument("--nodelay", action="store_true")
    parser.add_argument("--rcvbuf", type=int, help="SO_RCVBUF, in bytes")
    parser.add_argument("--chunk", type=int, default=1 << 16, help="bytes of each read")
    parser.add_argument("--pause", type=float, help="before each read, in ms")
    parser.add_argument("--gap", type=float, help="after each write, in ms")
    parser.add_argument("--backlog", type=int, default=128, help="of listen")
    parser.add_argument("--late", type=float, default=0, help="accept so many seconds late")
    parser.add_argument("--fill", type=int, default=0, help="idle connections before the one")
    parser.add_argument("--together", action="store_true", help="at the same time")
    parser.add_argument("--extra", type=int, default=0, help="bytes that the client writes last")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds until it leaves")
    parser.add_argument("--leave", action="store_true", help="the server closes without reading them")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    {"serve": serve, "connect": connect, "fail": fail}[args.end](args)


if __name__ == "__main__":
    main()
