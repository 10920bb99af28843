"""The servers and the calls of rules.rs.

    rules.py serve ADDRESS   at the far host: names, and servers that answer whatever comes
    rules.py CALL...         inside: makes each call, and prints a line with its outcome

A call is "tcp HOST PORT BYTES", "udp HOST PORT", "dns NAME" or "unix PATH". BYTES are tls=NAME, tls (no
name), ech=NAME, cut=NAME (a byte at a time), alert=NAME (another record first), half=NAME, http, first
(the server speaks first) or dns.
"""

import errno
import socket
import ssl
import struct
import sys
import threading
import time

ZONE = {
    "good.example.com": ["198.51.100.2"],
    "two.example.com": ["198.51.100.2"],
    "bad.example.com": ["198.51.100.3"],
    "alias.example.com": ["target.other.net", "198.51.100.4"],
    "a.wild.example.org": ["198.51.100.5"],
    "inner.example.com": ["10.9.9.9"],
    "loop.example.com": ["127.0.0.1"],
    "mapped.example.com": ["::ffff:10.9.9.9"],
    "meta.example.com": ["169.254.169.254"],
    "near.example.com": ["198.51.100.1"],
}


def name_of(text):
    return b"".join(bytes([len(part)]) + part.encode() for part in text.split(".")) + b"\0"


def answer(query):
    end, labels = 12, []
    while query[end]:
        labels.append(query[end + 1:end + 1 + query[end]].decode().lower())
        end += 1 + query[end]
    name = ".".join(labels)
    kind, = struct.unpack("!H", query[end + 1:end + 3])
    owner, records = b"\xc0\x0c", []
    for data in ZONE.get(name, []):
        if data[0].isalpha():
            target = name_of(data)
            records.append(owner + struct.pack("!HHIH", 5, 1, 1, len(target)) + target)
            owner = target
            continue
        family, own = (socket.AF_INET6, 28) if ":" in data else (socket.AF_INET, 1)
        if kind == own:
            value = socket.inet_pton(family, data)
            records.append(owner + struct.pack("!HHIH", own, 1, 1, len(value)) + value)
    code = 0 if name in ZONE else 3
    head = query[:2] + struct.pack("!BBHHHH", 0x84, 0x80 | code, 1, len(records), 0, 0)
    return head + query[12:end + 5] + b"".join(records)


def serve_tcp(port):
    listener = socket.create_server(("0.0.0.0", port))
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=talk, args=(connection, port), daemon=True).start()


def talk(connection, port):
    try:
        if port == 22:
            connection.sendall(b"SSH-2.0-x\r\n")
        data = connection.recv(65536)
        if port == 53:
            data = answer(data[2:])
            connection.sendall(struct.pack("!H", len(data)) + data)
        elif data:
            connection.sendall(b"seen")
        while connection.recv(65536):
            pass
    except OSError:
        pass
    connection.close()


def serve_udp(port):
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("0.0.0.0", port))
    while True:
        data, peer = listener.recvfrom(65536)
        is_query = port == 53 and not data.startswith(b"xx")
        listener.sendto(answer(data) if is_query else data, peer)


def serve():
    for port in (22, 53, 80, 443, 853, 8080):
        threading.Thread(target=serve_tcp, args=(port,)).start()
    for port in (53, 443):
        threading.Thread(target=serve_udp, args=(port,)).start()
    time.sleep(0.2)
    print("ready", flush=True)


def hello(name):
    """A ClientHello of the TLS library."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def encrypted(name):
    """The same with an encrypted ClientHello beside the outer name."""
    record = bytearray(hello(name))
    added = struct.pack("!HH", 0xfe0d, 120) + bytes(120)
    record += added
    at = 9 + 34
    at += 1 + record[at]
    at += 2 + int.from_bytes(record[at:at + 2], "big")
    at += 1 + record[at]
    for place, size in ((at, 2), (6, 3), (3, 2)):
        length = int.from_bytes(record[place:place + size], "big") + len(added)
        record[place:place + size] = length.to_bytes(size, "big")
    return bytes(record)


def send(connection, what):
    kind, _, name = what.partition("=")
    if kind == "http":
        connection.sendall(b"GET / HTTP/1.1\r\nHost: bad.example.com\r\n\r\n")
    elif kind == "tls":
        connection.sendall(hello(name or None))
    elif kind == "ech":
        connection.sendall(encrypted(name))
    elif kind == "alert":
        connection.sendall(b"\x15\x03\x03\0\2\1\0" + hello(name))
    elif kind == "half":
        connection.sendall(hello(name)[:60])
    elif kind == "cut":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = hello(name)
        for at in range(0, 40):
            connection.sendall(data[at:at + 1])
            time.sleep(0.001)
        connection.sendall(data[40:])
    elif kind == "first":
        if connection.recv(99) != b"SSH-2.0-x\r\n":
            raise AssertionError("the server speaks first")
        connection.sendall(b"SSH-2.0-y\r\n")
    elif kind == "dns":
        query = struct.pack("!HHHHHH", 7, 256, 1, 0, 0, 0) + name_of("bad.example.com") + b"\0\1\0\1"
        connection.sendall(struct.pack("!H", len(query)) + query)


def call(words):
    if words[0] == "unix":
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(words[1])
            return "ok"
    if words[0] == "dns":
        found = socket.getaddrinfo(words[1], 1, type=socket.SOCK_STREAM)
        return "found" if found else "none"
    kind = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}[words[0]]
    family, _, _, _, address = socket.getaddrinfo(words[1], int(words[2]), type=kind)[0]
    with socket.socket(family, kind) as connection:
        connection.settimeout(15)
        connection.connect(address)
        if words[0] == "udp":
            connection.send(b"x" * 40)
        else:
            send(connection, words[3])
        return "ok" if connection.recv(99) else "end"


def main(calls):
    for text in calls:
        try:
            outcome = call(text.split())
        except socket.gaierror:
            outcome = "no name"
        except socket.timeout:
            outcome = "timeout"
        except OSError as error:
            outcome = errno.errorcode.get(error.errno, str(error))
        print(f"{text}: {outcome}", flush=True)


if sys.argv[1] == "serve":
    serve()
else:
    main(sys.argv[1:])
