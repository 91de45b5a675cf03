"""Replace three workers one by one. A policy passes the seat of each old worker to its successor, without a rebalance:

    python examples/rolling_deploy.py --bootstrap-servers localhost:9092

It replaces all policies of the coordinator. Output of the first run, in which times and ids differ:

    w1 is replaced, and owns the same tenant
    w2 is replaced, and owns the same tenant
    w3 is replaced, and owns the same tenant
    rolling-deploy rebalanced at 20:51:18.693 for 7.4 s, to generation 1: 3 partitions changed hands among 3 members.
    w1-748d at /127.0.0.1 joined, with the reason "can take 3 resources".
    Within a day, 3 departures became 0 rebalances: 3 seats passed on, the longest 1.6 s without an owner (succession).
    Unavoidable: a new member gets its assignment. If many members start together, the coordinator's
    group_initial_rebalance_delay_ms makes them join in one rebalance.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from streaming.client import GroupMember

GROUP = "rolling-deploy"
TENANTS = ["acme", "bolt", "cobra"]
WORKERS = ["w1", "w2", "w3"]
POLICY = f"""
[[policies]]
name = "{GROUP}"
succession = {{ vacant_ms = 30000 }}
"""
POLL_S = 0.1
ROUNDS_MAX = 600
"""The most rounds of polls until each worker owns a tenant."""


def run(*arguments: str) -> None:
    """Run a command of groupcoord, which prints its result."""
    subprocess.run([sys.executable, "-m", "streaming", *arguments], check=True)


def await_assignments(workers: dict[str, GroupMember]) -> None:
    """Poll all workers until each of them owns a tenant."""
    for _ in range(ROUNDS_MAX):
        owned = [worker.poll(POLL_S) for worker in workers.values()]
        if all(owned):
            return
    raise TimeoutError(f"not all workers own a tenant after {ROUNDS_MAX} rounds")


def deploy(settings: dict[str, str], place: Sequence[str]) -> None:
    """Start three workers, replace each of them, and print what the group went through.

    The old worker leaves before its successor joins.
    """
    workers = {name: GroupMember(TENANTS, client_id=name, **settings) for name in WORKERS}
    await_assignments(workers)
    try:
        for name, old in list(workers.items()):
            before = old.assignment
            old.leave("a new version is deployed")
            workers[name] = GroupMember(TENANTS, client_id=name, **settings)
            await_assignments(workers)
            kept = "the same tenant" if workers[name].assignment == before else "another tenant"
            print(f"{name} is replaced, and owns {kept}", flush=True)
        run("groups", "why", GROUP, *place)
    finally:
        for worker in workers.values():
            worker.leave()


def main(arguments: Sequence[str] | None = None) -> None:
    """Set the policy, and deploy."""
    parser = argparse.ArgumentParser(description="Replace workers without a rebalance.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic-prefix", default="coordinator", help="the prefix of the coordinator's topics")
    options = parser.parse_args(arguments)
    place = ("--bootstrap-servers", options.bootstrap_servers, "--topic-prefix", options.topic_prefix)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "policies.toml")
        file.write_text(POLICY)
        run("policy", "set", str(file), *place)
    deploy(
        {"group_id": GROUP, "bootstrap_servers": options.bootstrap_servers, "topic_prefix": options.topic_prefix}, place
    )


if __name__ == "__main__":
    main()
