"""Runs a broker and a coordinator under load, with the recorder, which records all their changes of files.

    python -m tests.power.record FOLDER SECONDS

Halfway, the coordinator is stopped cleanly and started again, so that the recording also has a stop and a restart.
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
"""Folders below a run's folder. DISK exists before the coordinator starts. Its start makes CHECKPOINT."""

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
    "log.index.size.max.bytes": "65536",  # each file has this length from the beginning
    "log.roll.ms": "8000",  # so that a partition has several segments
    "log.initial.task.delay.ms": "86400000",  # no segment expires before the judge reads it
}


def settings_for(bootstrap_servers: str, folder: Path) -> Settings:
    return Settings.load(bootstrap_servers=bootstrap_servers, checkpoint=str(folder / CHECKPOINT), **SETTINGS)


def record(folder: Path, seconds: float) -> None:
    """Run the broker and the coordinator for `seconds`, and stop them."""
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
