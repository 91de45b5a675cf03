"""Runs a broker and a coordinator under load; started under the recorder, so that all they do to files is noted.

    python -m tests.power.record FOLDER SECONDS

The coordinator is stopped in good order and started again half-way, so that there are all kinds of moments.
"""

import sys
import time
from pathlib import Path

from streaming.config.settings import Settings
from streaming.embedded import Broker
from tests.system.conftest import start_service
from tests.system.replaying import RequestLog, await_taken, claim

TOPIC_PREFIX = "power"
DISK, CHECKPOINT = "disk", "disk/state"
"""Below a run's folder: what is there before the coordinator starts, and what its start makes."""

REQUEST_PARTITIONS = 4
SETTINGS = {
    "topic_prefix": TOPIC_PREFIX,
    "replication_factor": 1,
    "request_partitions": REQUEST_PARTITIONS,
    "reply_partitions": 4,
    "group_initial_rebalance_delay_ms": 300,
    "broker_wait_ms": 20_000,
}
BROKER = {
    "log.index.size.max.bytes": "65536",  # each is as long from the beginning
    "log.roll.ms": "8000",  # so that a partition has several segments
    "log.initial.task.delay.ms": "86400000",  # nothing is deleted for its age while it is judged
}


def settings_for(bootstrap_servers: str, folder: Path) -> Settings:
    return Settings.load(bootstrap_servers=bootstrap_servers, checkpoint=str(folder / CHECKPOINT), **SETTINGS)


def record(folder: Path, seconds: float) -> None:
    """Let the parts run for so long, and stop them."""
    with Broker(folder / "broker", properties=BROKER) as broker:
        settings = settings_for(broker.bootstrap_servers, folder)
        claim(settings)
        log = RequestLog(settings)
        for number in range(2):
            log.append()
            where = {"bootstrap_servers": broker.bootstrap_servers, "checkpoint": settings.checkpoint}
            service = start_service(folder, number, **where, **SETTINGS)
            service.await_ready()
            until_s = time.monotonic() + seconds / 2
            while time.monotonic() < until_s:
                log.append()
                log.append()
                await_taken(service)
            assert service.stop() == 0, service.log


if __name__ == "__main__":
    record(Path(sys.argv[1]), float(sys.argv[2]))
