"""Two coordinators on the shared broker that are peers, and the command that moves groups between them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.config.settings import Settings
from streaming.errors import NoAnswer
from streaming.kafka import topics
from tests.system.conftest import Service
from tests.system.waiting import wait_until

Run = Callable[..., Service]
SHARDS = 4, 3


def start_pair(
    run_service: Run, bootstrap_servers: str, folder: Path, names: tuple[str, str]
) -> tuple[Service, Service]:
    """Return two coordinators: the first one owns all groups, the second one those that it gets."""
    key = folder / "peers.key"
    key.write_text("of both coordinators, 32 bytes or more".replace(" ", "-"))
    for name, shards in zip(names, SHARDS, strict=True):
        topics.ensure(
            Settings(
                bootstrap_servers=bootstrap_servers,
                topic_prefix=name,
                replication_factor=1,
                request_partitions=shards,
            )
        )
    services: list[Service] = []
    for place, name in enumerate(names):
        own: dict[str, Any] = {"request_partitions": SHARDS[place], "slots": "none" if place else "all"}
        checkpoint, peer = str(folder / f"checkpoint-of-{name}"), names[1 - place]
        services.append(run_service(name, peers=(peer,), checkpoint=checkpoint, peer_key_file=str(key), **own))
    for service in services:
        service.await_ready()
    return services[0], services[1]


def move(source: Settings, target: Settings, *typed: str) -> dict[str, str]:
    """Run `coordinator move` until it succeeds, and return the first status of each group but `in transit`.

    On a slow machine the other coordinator may need longer for its answer than the command waits.
    """
    flags = ("-b", str(source.bootstrap_servers), "--topic-prefix", source.topic_prefix, "-o", "json")
    found: dict[str, str] = {}

    def succeeds() -> bool:
        done = CliRunner().invoke(app, ["move", "--to", target.topic_prefix, *typed, *flags])
        assert done.exit_code == 0 or isinstance(done.exception, NoAnswer), done.exception or done.output
        for each in json.loads(done.stdout or "[]"):
            if each["status"] != "in transit":
                found.setdefault(each["group_id"], each["status"])
        return done.exit_code == 0

    wait_until(succeeds)
    return found
