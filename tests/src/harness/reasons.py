"""Servers, and clients with one defect each, for `plimsoll run --explain`."""

import socket
import sys
import threading
import time

KIND, HOST = sys.argv[1], sys.argv[2]
ANSWER = bytes(100)


def answer(connection, delay):
    """Answers requests of a header, with the length of the body, and a body."""
    requests = connection.makefile("rb")
    while len(header := requests.read(4)) == 4:
        requests.read(int.from_bytes(header, "big"))
        time.sleep(delay)
        connection.sendall(ANSWER)
    connection.close()


def take(connection, pause):
    """Reads everything, then answers."""
    while connection.recv(65536):
        time.sleep(pause)
    connection.sendall(ANSWER)
    connection.close()


def give(connection, _):
    connection.sendall(bytes(40_000_000))
    connection.close()


SERVERS = {7: (answer, 0), 8: (answer, 0.3), 9: (take, 0), 10: (take, 0.005), 11: (give, 0)}


def accept(server, serve, option):
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection, option), daemon=True).start()


def name_server(delay):
    """Gives each name the host's own address."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((HOST, 53))
    print("ready", flush=True)
    while True:
        query, peer = server.recvfrom(4096)
        time.sleep(delay)
        end = 12
        while query[end]:
            end += query[end] + 1
        is_v4 = query[end + 1 : end + 3] == b"\0\1"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(HOST) if is_v4 else b""
        counts = b"\0\1\0" + bytes([bool(record)]) + bytes(4)
        server.sendto(query[:2] + b"\x81\x80" + counts + query[12 : end + 5] + record, peer)


def connect(port, nodelay=True):
    connection = socket.create_connection((HOST, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
    return connection


def ask(connection, count, apart=False):
    header, body = (200).to_bytes(4, "big"), bytes(200)
    answers = connection.makefile("rb")
    for _ in range(count):
        for part in (header, body) if apart else (header + body,):
            connection.sendall(part)
        assert len(answers.read(len(ANSWER))) == len(ANSWER)


def upload(port):
    connection = connect(port)
    connection.sendall(bytes(40_000_000))
    connection.shutdown(socket.SHUT_WR)
    assert connection.recv(len(ANSWER))


def download(pause):
    connection = connect(11)
    while connection.recv(65536):
        time.sleep(pause)


def reconnect(count):
    for _ in range(count):
        with connect(7) as connection:
            ask(connection, 1)


def look_up():
    address = socket.gethostbyname("name.example")
    assert address == HOST, address
    ask(connect(7), 1)


def serve():
    servers = [(socket.create_server((HOST, port), backlog=200), *how)
               for port, how in SERVERS.items()]
    print("ready", flush=True)
    threads = [threading.Thread(target=accept, args=server) for server in servers]
    for thread in threads:
        thread.start()


{
    "serve": serve,
    "names": lambda: name_server(0),
    "slow-names": lambda: name_server(2),
    "one-write": lambda: ask(connect(7, nodelay=False), 40),
    "apart-nodelay": lambda: ask(connect(7), 40, apart=True),
    "apart": lambda: ask(connect(7, nodelay=False), 40, apart=True),
    "asks": lambda: ask(connect(7), int(sys.argv[3])),
    "asks-slow-server": lambda: ask(connect(8), int(sys.argv[3])),
    "uploads": lambda: upload(9),
    "uploads-to-slow-reader": lambda: upload(10),
    "downloads": lambda: download(0),
    "reads-slowly": lambda: download(0.005),
    "reconnects": lambda: reconnect(50),
    "looks-up": look_up,
}[KIND]()
