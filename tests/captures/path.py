"""A path between two network namespaces: delay, a rate with a bounded queue, and loss.

    path.py NEAR FAR [--delay MS] [--loss SHARE] [--rate BITS/S --queue BYTES] [--offloads]
            [--lose-syns COUNT] [--lose-syn-acks COUNT] [--largest BYTES [--reports]]
            [--late-acks MS]

A TUN device `path0` appears in each of the two namespaces, and every packet that one of them sends
comes out of the other after the delay. With --offloads the devices take super-segments, as network
cards do, and these travel whole. `ready` is printed when both devices are there; the end of
standard input ends the program.

The kernel's netem does the same where it is built in. This needs /dev/net/tun only.
"""

import argparse
import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import socket
import struct
import sys
import time

TUNSETIFF = 0x400454CA
TUNSETOFFLOAD = 0x400454D0
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000
IFF_VNET_HDR = 0x4000
# Checksums, super-segments of TCP over IPv4 and IPv6.
OFFLOADS = 0x01 | 0x02 | 0x04
VNET_HDR_LEN = 10
CLONE_NEWNET = 0x40000000
# Packets on their way in one direction; a path of 100 ms at 1 Gbit/s holds fewer.
MOST_PACKETS = 10_000
# No packet is longer: a super-segment and the header of the device.
LONGEST = 65_535 + VNET_HDR_LEN
# Flags of TCP.
SYN, ACK = 0x02, 0x10
# The address of the router that reports packets that are too large.
ROUTER = bytes([198, 51, 100, 254])
# Packets up to this length are never lost, so that handshakes and ACKs do not depend on the seed,
# except those that --lose-syns and --lose-syn-acks name.
SMALL = 200


def enter(namespace):
    """Makes this thread a part of a namespace that `ip netns` made."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", "rb") as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), f"entering the namespace {namespace}")


def open_device(namespace, offloads):
    """Opens the TUN device of a namespace."""
    enter(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = IFF_TUN | IFF_NO_PI | (IFF_VNET_HDR if offloads else 0)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"path0", flags))
    if offloads:
        fcntl.ioctl(device, TUNSETOFFLOAD, OFFLOADS)
    return device


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def too_large(packet, mtu):
    """The ICMP error of a router that a packet of IPv4 does not fit (RFC 1191, section 4)."""
    body = struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + packet[:28]
    body = body[:2] + struct.pack("!H", checksum(body)) + body[4:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 1, 0, ROUTER, packet[12:16])
    return ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + body


def is_ack_alone(packet):
    """Whether a packet of IPv4 is an ACK without data, and no SYN, FIN or reset."""
    if len(packet) < 40 or packet[0] != 0x45 or packet[9] != socket.IPPROTO_TCP:
        return False
    return packet[33] == ACK and len(packet) == 20 + (packet[32] >> 4) * 4


class Direction:
    """What is on its way from one device to the other."""

    def __init__(self, source, sink, seed, args, late_acks=0):
        self.source, self.sink, self.args, self.late_acks = source, sink, args, late_acks
        self.random = random.Random(seed)
        # When each packet is due, how many were taken before it, and the packet.
        self.under_way = []
        self.numbers = itertools.count()
        # When the link will have sent what it has taken.
        self.free_at = 0.0
        # How many segments with these of the flags SYN and ACK are still to be lost.
        self.lose = {SYN: args.lose_syns, SYN | ACK: args.lose_syn_acks}

    def take(self, now):
        """Takes all packets that wait at the source."""
        while True:
            try:
                packet = os.read(self.source, LONGEST)
            except BlockingIOError:
                return
            lost = len(packet) > SMALL and self.random.random() < self.args.loss
            lost = lost or self.is_named(packet) or self.is_too_large(packet)
            if lost or len(self.under_way) >= MOST_PACKETS:
                continue
            leaves = now
            if self.args.rate:
                backlog = max(0.0, self.free_at - now) * self.args.rate / 8
                if backlog + len(packet) > self.args.queue:
                    continue
                leaves = max(now, self.free_at) + len(packet) * 8 / self.args.rate
                self.free_at = leaves
            due = leaves + self.args.delay / 1000
            if self.late_acks and is_ack_alone(packet):
                due += self.late_acks / 1000
            elif self.late_acks:
                # It acknowledges as much as those that are late.
                self.under_way = [each for each in self.under_way if not is_ack_alone(each[2])]
                heapq.heapify(self.under_way)
            heapq.heappush(self.under_way, (due, next(self.numbers), packet))

    def is_named(self, packet):
        """Whether a packet is one of the SYNs or SYN-ACKs that are to be lost."""
        if len(packet) < 40 or packet[0] != 0x45 or packet[9] != socket.IPPROTO_TCP:
            return False
        flags = packet[33] & (SYN | ACK)
        if self.lose.get(flags, 0) == 0:
            return False
        self.lose[flags] -= 1
        return True

    def is_too_large(self, packet):
        """Whether a packet is above --largest; with --reports its sender learns of it."""
        if not self.args.largest or len(packet) <= self.args.largest:
            return False
        if self.args.reports and packet[0] >> 4 == 4:
            with contextlib.suppress(OSError):
                os.write(self.source, too_large(packet, self.args.largest))
        return True

    def deliver(self, now):
        """Delivers what is due, and says when the next packet will be."""
        while self.under_way and self.under_way[0][0] <= now:
            try:
                os.write(self.sink, heapq.heappop(self.under_way)[2])
            except OSError:
                # The device is down, or does not take the packet: it is lost.
                continue
        return self.under_way[0][0] if self.under_way else None


def run(args):
    near, far = (open_device(name, args.offloads) for name in (args.near, args.far))
    # Other work on the machine must not become a delay of the path.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    directions = [Direction(near, far, 1, args), Direction(far, near, 2, args, args.late_acks)]
    print("ready", flush=True)
    while True:
        now = time.monotonic()
        due = [at for at in (each.deliver(now) for each in directions) if at is not None]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        ready, _, _ = select.select([near, far, sys.stdin], [], [], wait)
        if sys.stdin in ready:
            return
        now = time.monotonic()
        for each in directions:
            if each.source in ready:
                each.take(now)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("near")
    parser.add_argument("far")
    parser.add_argument("--delay", type=float, default=0, help="of each way, in ms")
    parser.add_argument("--loss", type=float, default=0, help="share of packets, 0 to 1")
    parser.add_argument("--rate", type=float, default=0, help="bits per second")
    parser.add_argument("--queue", type=int, default=30_000, help="bytes")
    parser.add_argument("--lose-syns", type=int, default=0, help="the first ones")
    parser.add_argument("--lose-syn-acks", type=int, default=0, help="the first ones")
    parser.add_argument("--largest", type=int, default=0, help="bytes of a packet that passes")
    parser.add_argument("--reports", action="store_true", help="ICMP errors for larger ones")
    parser.add_argument("--late-acks", type=float, default=0, help="of FAR, in ms: those without data")
    parser.add_argument("--offloads", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
