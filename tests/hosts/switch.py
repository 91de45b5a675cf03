"""A switch between hosts: a process that passes IP packets from one TUN device to another, late or not at all.

    python -m tests.hosts.switch NAME=ADDRESS ...

It makes a TUN device of each name. Each line of its input is the JSON of a list of `Link`s, which say what happens to
the packets between two addresses from now on. It answers each line, and ends with its input.
"""

import contextlib
import fcntl
import heapq
import os
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping

import msgspec

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET_MAX = 65_535  # bytes
AT_ONCE_MAX = 256
"""The number of packets that are read from one device before the others have their turn."""

READY = "ready"


class Link(msgspec.Struct, frozen=True):
    """What happens to the packets between two addresses, in both directions.

    Args:
        delay_ms: The time that a packet takes in one direction.
        loss: The share of the packets that are lost, 0 to 1. With 1, the cable is pulled: nobody is told.
    """

    a: str
    b: str
    delay_ms: float = 0.0
    loss: float = 0.0


def device(name: str) -> int:
    """Make a TUN device, and return its file descriptor. A read or a write is one IP packet."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


def run(devices: Mapping[bytes, int]) -> None:
    """Pass packets between the devices, by the addresses behind them, until the input ends."""
    links: dict[frozenset[bytes], Link] = {}
    late: list[tuple[float, int, int, bytes]] = []
    chance, passed = random.Random(1), 0
    while True:
        wait_s = max(0.0, late[0][0] - time.monotonic()) if late else None
        readable, _, _ = select.select([0, *devices.values()], [], [], wait_s)
        if 0 in readable:
            if not (line := sys.stdin.readline()):
                return
            for link in msgspec.json.decode(line, type=list[Link]):
                links[frozenset((packed(link.a), packed(link.b)))] = link
            print(READY, flush=True)
        for packet in packets(readable):
            found = links.get(frozenset((packet[12:16], packet[16:20])))
            to = devices.get(packet[16:20])
            if to is None or (found and found.loss and chance.random() < found.loss):
                continue
            if found and found.delay_ms:
                passed += 1
                heapq.heappush(late, (time.monotonic() + found.delay_ms / 1_000, passed, to, packet))
            else:
                write(to, packet)
        while late and late[0][0] <= time.monotonic():
            write(late[0][2], heapq.heappop(late)[3])


def packets(readable: list[int]) -> Iterator[bytes]:
    """Yield the IPv4 packets that wait in devices."""
    for descriptor in readable:
        with contextlib.suppress(BlockingIOError):
            for _ in range(AT_ONCE_MAX if descriptor else 0):
                packet = os.read(descriptor, PACKET_MAX)
                if packet[0] >> 4 == 4:
                    yield packet


def write(to: int, packet: bytes) -> None:
    """Write a packet to a device. A device that is full or down loses it, as any network does."""
    with contextlib.suppress(OSError):
        os.write(to, packet)


def packed(address: str) -> bytes:
    return socket.inet_aton(address)


if __name__ == "__main__":
    named = [argument.split("=") for argument in sys.argv[1:]]
    made = {packed(address): device(name) for name, address in named}
    print(READY, flush=True)
    run(made)
