"""Grow a coordinator from 4 shards to 16 while three workers work, without a rebalance:

    python examples/growing.py --bootstrap-servers localhost:9092

It starts two coordinators of its own beside the one of `groupcoord up`. Output of the first run:

    small has 4 shards
    w1, w2 and w3 own acme, bolt, cobra in generation 1
    large has 16 shards
    growing-workers is moved
    w1, w2 and w3 own acme, bolt, cobra in generation 1
    small has stopped
    w1, w2 and w3 own acme, bolt, cobra in generation 1
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from streaming.client import GroupMember

TENANTS = ["acme", "bolt", "cobra"]
WORKERS = ["w1", "w2", "w3"]
POLL_S = 0.1
ROUNDS_MAX = 600
"""The most rounds of polls until each worker owns a tenant."""


class Cluster:
    """Coordinators on the same brokers, with checkpoints in one folder."""

    def __init__(self, bootstrap_servers: str, folder: Path) -> None:
        self.bootstrap_servers, self._folder = bootstrap_servers, folder
        self._key = folder / "peers.key"
        self._key.write_text(secrets.token_urlsafe(32))

    @contextmanager
    def running(self, prefix: str, shards: int, **settings: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start a coordinator, wait until it serves, and stop it at the end."""
        ready = self._folder / f"{prefix}.ready"
        ready.unlink(missing_ok=True)
        command = self._command("run", prefix, "--checkpoint", str(self._folder / prefix), "--ready-file", str(ready))
        with (self._folder / f"{prefix}.log").open("ab") as log:
            process = subprocess.Popen(command, env=self._environment(shards, **settings), stderr=log)
        try:
            while not ready.exists():
                if process.poll() is not None:
                    sys.exit((self._folder / f"{prefix}.log").read_text())
                time.sleep(POLL_S)
            yield process
        finally:
            process.terminate()
            process.wait()

    def has_grown(self, prefix: str, to: str, shards: int) -> bool:
        """Run `coordinator grow`, and return whether all groups have moved. It prints the result of each group."""
        command = self._command("grow", prefix, "--to", to, "--shards", str(shards), "--yes", "--output", "json")
        done = subprocess.run(command, env=self._environment(shards), capture_output=True, text=True, check=False)
        for result in json.loads(done.stdout or "[]"):
            print(f"{result['group_id']} is {result['status']}", flush=True)
        return done.returncode == 0

    def peer(self, prefix: str) -> dict[str, str]:
        """Return the settings of a coordinator that exchanges groups with another one."""
        return {"peers": json.dumps([prefix]), "peer_key_file": str(self._key)}

    def _command(self, name: str, prefix: str, *flags: str) -> list[str]:
        where = ("--bootstrap-servers", self.bootstrap_servers, "--topic-prefix", prefix, "--replication-factor", "1")
        return [sys.executable, "-m", "streaming", name, *where, *flags]

    @staticmethod
    def _environment(shards: int, **settings: str) -> dict[str, str]:
        named = {"request_partitions": str(shards), **settings}
        return {**os.environ, **{f"COORDINATOR_{name.upper()}": value for name, value in named.items()}}


def report(workers: Sequence[GroupMember]) -> None:
    """Poll all workers until each of them owns a tenant in the same generation, and print what they own."""
    for _ in range(ROUNDS_MAX):
        owned = [worker.poll(POLL_S) for worker in workers]
        generations = {worker.generation for worker in workers}
        if all(owned) and len(generations) == 1:
            tenants = sorted(tenant for each in owned for tenant in each)
            print(f"w1, w2 and w3 own {', '.join(tenants)} in generation {generations.pop()}", flush=True)
            return
    raise TimeoutError(f"not all workers own a tenant after {ROUNDS_MAX} rounds")


def grow(cluster: Cluster) -> None:
    """Start a small coordinator with three workers, grow it, and print what the workers own meanwhile."""
    with ExitStack() as coordinators, ExitStack() as members:
        with cluster.running("small", 4):
            print("small has 4 shards", flush=True)
            settings = {"bootstrap_servers": cluster.bootstrap_servers, "topic_prefix": "small"}
            workers = [
                members.enter_context(GroupMember(TENANTS, group_id="growing-workers", client_id=name, **settings))
                for name in WORKERS
            ]
            report(workers)
            cluster.has_grown("small", "large", 16)  # the first run creates the topics, and shows the other steps
        coordinators.enter_context(cluster.running("large", 16, slots="none", **cluster.peer("small")))
        print("large has 16 shards", flush=True)
        with cluster.running("small", 4, **cluster.peer("large")):
            while not cluster.has_grown("small", "large", 16):
                pass
            report(workers)
        print("small has stopped", flush=True)
        report(workers)


def main(arguments: Sequence[str] | None = None) -> None:
    """Grow, with all files in a temporary folder."""
    parser = argparse.ArgumentParser(description="Grow a coordinator under live workers.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        grow(Cluster(options.bootstrap_servers, Path(folder)))


if __name__ == "__main__":
    main()
