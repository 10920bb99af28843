#!/usr/bin/env python3
"""Puts the packets of a capture into tunnels, one file for each kind.

    wrap.py CAPTURE FOLDER      writes FOLDER/tunnel-KIND.client.pcap

The capture is little-endian pcap of IPv4, on Ethernet or raw. Kernels without modules have few
tunnels, and the headers are short: they are written here by the RFCs that the kinds name.
"""

import pathlib
import struct
import sys

# Packets that are kept.
PACKETS = 60
ETHERNET, RAW = 1, 101
MACS = bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2])


def ethernet(ethertype, payload):
    return MACS + struct.pack("!H", ethertype) + payload


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def ipv4(protocol, payload, length):
    """A header of IPv4 in front of what was kept of `length` bytes."""
    addresses = bytes([192, 0, 2, 1, 192, 0, 2, 2])
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, protocol, 0) + addresses
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def ipv6(protocol, payload, length, hosts=b"\x01\x02"):
    """The same of IPv6, between two hosts by the last bytes of their addresses."""
    prefix = bytes.fromhex("20010db8" + "00" * 11)
    addresses = prefix + hosts[:1] + prefix + hosts[1:]
    return struct.pack("!IHBB", 6 << 28, length, protocol, 64) + addresses + payload


def udp(port, payload, length):
    return struct.pack("!HHHH", 50000, port, 8 + length, 0) + payload


def as_ipv6(packet):
    """A packet of IPv4 as one of IPv6 with the same payload."""
    hosts = packet[15:16] + packet[19:20]
    return ipv6(packet[9], packet[20:], struct.unpack("!H", packet[2:4])[0] - 20, hosts)


def kinds(packet, length):
    """Each kind, its link type and the packet in it."""
    frame, framed = ethernet(0x0800, packet), length + 14
    session = b"\x11\x00\x00\x07" + struct.pack("!HH", length + 2, 0x0021)
    yield "pppoe", ETHERNET, ethernet(0x8864, session + packet)
    label = struct.pack("!I", 100 << 12 | 64) + struct.pack("!I", 200 << 12 | 0x100 | 64)
    yield "mpls", ETHERNET, ethernet(0x8847, label + packet)
    yield "vlan-qinq", ETHERNET, MACS + bytes.fromhex("88a80005810000070800") + packet
    vxlan = bytes([8, 0, 0, 0, 0, 0, 5, 0]) + frame
    yield "vxlan", RAW, ipv4(17, udp(4789, vxlan, framed + 8), framed + 16)
    geneve = bytes.fromhex("0200655800000500") + bytes(8) + frame
    yield "geneve", RAW, ipv4(17, udp(6081, geneve, framed + 16), framed + 24)
    yield "gre", RAW, ipv4(47, bytes.fromhex("20000800") + bytes(4) + packet, length + 8)
    yield "gretap", RAW, ipv4(47, bytes.fromhex("00006558") + frame, framed + 4)
    erspan = bytes.fromhex("100088be00000001") + bytes(8) + frame
    yield "erspan", RAW, ipv4(47, erspan, framed + 16)
    yield "4in4", RAW, ipv4(4, packet, length)
    yield "6in4", RAW, ipv4(41, as_ipv6(packet), length + 20)
    yield "4in6", RAW, ipv6(4, packet, length)
    yield "6in6", RAW, ipv6(41, as_ipv6(packet), length + 20)


def main():
    source, folder = pathlib.Path(sys.argv[1]).read_bytes(), pathlib.Path(sys.argv[2])
    front = 14 if struct.unpack("<I", source[20:24])[0] == ETHERNET else 0
    files, at, count = {}, 24, 0
    while at < len(source) and count < PACKETS:
        seconds, micros, kept, length = struct.unpack("<IIII", source[at : at + 16])
        packet = source[at + 16 + front : at + 16 + kept]
        for name, link, data in kinds(packet, length - front):
            header = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, link)
            lengths = (len(data), len(data) + length - kept)
            record = struct.pack("<IIII", seconds, micros, *lengths) + data
            files[name] = files.get(name, header) + record
        at += 16 + kept
        count += 1
    for name, data in files.items():
        (folder / f"tunnel-{name}.client.pcap").write_bytes(data)


if __name__ == "__main__":
    main()
