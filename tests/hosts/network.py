"""Hosts on this machine: each is a network namespace with an address, and all packets between them pass a `switch`.

The processes of a host see its address and no other interface but the loopback one. A pulled cable loses packets and
tells nobody, as a real one behind a switch does. Linux's own simulator of bad networks (`tc netem`) needs a module that
many kernels do not have; the switch needs only TUN devices. Root's rights are needed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import pytest

from tests.hosts.switch import READY, Link
from tests.system.waiting import HANG_S
from tests.tools import MISSING, missing, needed

SUBNET = "198.18"
"""The beginning of the addresses: a range that is kept for tests of networks (RFC 2544)."""

MTU = 16_000
"""The largest packet, bytes: with few large ones, the switch costs little beside what it connects."""


class Host(NamedTuple):
    """A place where processes run.

    Args:
        address: Its IPv4 address.
        prefix: The words before a command that run it there; none for this machine itself.
    """

    address: str
    prefix: tuple[str, ...] = ()


HERE = Host("127.0.0.1")
"""This machine without a network."""


class Network:
    """Hosts by their names, and a switch. Use it in a `with` block. The host `test` is this process's own network."""

    def __init__(self, *names: str) -> None:
        self._names = ("test", *names)
        self._stack = ExitStack()
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def _begin(self, stack: ExitStack) -> None:
        third = os.getpid() % 256
        address = {name: f"{SUBNET}.{third}.{n}" for n, name in enumerate(self._names, start=1)}
        device = {name: f"sw{third}-{n}" for n, name in enumerate(self._names)}
        command = [sys.executable, "-m", "tests.hosts.switch", *(f"{device[n]}={address[n]}" for n in self._names)]
        self._switch = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self._await_ready()
        for name in self._names:
            prefix = () if name == "test" else self._namespace(stack, device[name])
            self.hosts[name] = Host(address[name], prefix)
            for words in (
                ("addr", "add", f"{address[name]}/24", "dev", device[name]),
                ("link", "set", "dev", device[name], "mtu", str(MTU), "up"),
                ("link", "set", "dev", "lo", "up"),
            ):
                subprocess.run([*prefix, "ip", *words], check=True, timeout=HANG_S)
        stack.callback(self._end_switch)

    def _end_switch(self) -> None:
        """End the switch, before the namespaces that have its devices."""
        assert self._switch.stdin is not None
        self._switch.stdin.close()
        self._switch.wait(HANG_S)

    def _namespace(self, stack: ExitStack, device: str) -> tuple[str, ...]:
        """Make a namespace with a device. A process holds it, which ends with its input, also if we are killed."""
        holder = stack.enter_context(
            subprocess.Popen(
                ["unshare", "--net", "sh", "-c", f"echo {READY}; exec cat"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        stack.callback(holder.stdin.close)  # type: ignore[union-attr]
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == READY
        subprocess.run(["ip", "link", "set", "dev", device, "netns", str(holder.pid)], check=True, timeout=HANG_S)
        return (needed("nsenter"), f"--net=/proc/{holder.pid}/ns/net", "--")

    # -- what happens to packets ---------------------------------------------------------------------------------------

    def pull(self, these: Iterable[str], those: Iterable[str]) -> None:
        """Pull the cables between some hosts and others: all packets are lost."""
        self._set(these, those, loss=1.0)

    def plug(self, these: Iterable[str], those: Iterable[str]) -> None:
        """Plug the cables between some hosts and others in again."""
        self._set(these, those)

    def slow(self, names: Sequence[str], round_trip_ms: float, loss: float = 0.0) -> None:
        """Make all packets between any two of some hosts late, and lose a share of them (0 to 1)."""
        self._set(names, names, round_trip_ms / 2, loss)

    def _set(self, these: Iterable[str], those: Iterable[str], delay_ms: float = 0.0, loss: float = 0.0) -> None:
        links = [Link(self[a].address, self[b].address, delay_ms, loss) for a, b in product(these, those)]
        assert self._switch.stdin is not None
        self._switch.stdin.write(msgspec.json.encode(links).decode() + "\n")
        self._switch.stdin.flush()
        self._await_ready()

    def _await_ready(self) -> None:
        assert self._switch.stdout is not None
        assert self._switch.stdout.readline().strip() == READY


def why_no_network() -> str | None:
    """Return why this machine cannot make hosts; None if it can."""
    if shutil.which("ip") is None:
        return missing("ip")
    can = os.geteuid() == 0 and Path("/dev/net/tun").exists()
    if can and not subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode:
        return None
    return f"{MISSING}network namespaces and TUN devices for this user: run as root, on Linux"


def needs_network() -> None:
    """Skip the test on a machine that cannot make hosts."""
    if reason := why_no_network():
        pytest.skip(reason)
