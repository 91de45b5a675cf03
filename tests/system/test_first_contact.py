"""The first command of somebody who wants to know the groups of a Kafka: `coordinator observe -b ... --dashboard`."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from streaming.embedded import Broker
from tests.system.kafka_groups import kafka_group
from tests.system.test_observe_kills import start_observer
from tests.system.waiting import HANG_S, wait_until


def groups_of(url: str) -> list[str]:
    """Return the groups on the page; none while it still reads the topics."""
    try:
        with urllib.request.urlopen(f"{url}/api/groups", timeout=HANG_S) as answer:
            told: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return []
    return [group["group_id"] for group in told["groups"]]


def test_observer_serves_the_page_of_the_groups_too(broker: Broker, tmp_path: Path) -> None:
    with kafka_group(broker.bootstrap_servers, "first-contact") as group:
        group.join("ana").await_owned(0, 1, 2, 3)
        observer = start_observer(broker.bootstrap_servers, tmp_path, "first", 0, "--dashboard", dashboard_port=0)
        try:
            observer.await_ready()
            url = json.loads(observer.ready_file.read_text())["dashboard"]
            wait_until(lambda: "first-contact" in groups_of(url), account=lambda: groups_of(url))
            assert observer.stop() == 0
        finally:
            if observer.process.poll() is None:
                observer.kill()
