"""A broker of its own is started again on another rack, and a topic is deleted while no observer runs: both are named,
and the history stays as it is."""

from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from streaming.embedded import Broker
from tests.differential.theirs import RULES
from tests.system.kafka_groups import kafka_group
from tests.system.reading import Reader
from tests.system.test_observe_causes import AT_ONCE, says
from tests.system.test_observe_kills import start_observer
from tests.system.test_observed_walkthroughs import MODERN, Shown
from tests.system.waiting import HANG_S
from tests.tiers import NIGHTLY

pytestmark = list(NIGHTLY)

GROUP = "racks"


def test_changed_racks_and_a_topic_deleted_while_no_observer_runs(tmp_path: Path) -> None:
    """W3, W4: the racks of all replicas belong to the hash. What an observer has seen is known to the next one."""
    broker = Broker(tmp_path / "broker", properties=RULES).start()
    servers = broker.bootstrap_servers
    services = [start_observer(servers, tmp_path, "racks", 0)]

    def histories() -> list[dict[str, Any]]:
        return Reader(services[0].settings, GROUP).events()

    try:
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, GROUP, configs=AT_ONCE)])
        admin.close()
        with kafka_group(servers, GROUP) as group:
            seen: Any = Shown(services[0], group.group_id)  # type: ignore[arg-type]
            group.join("ana", **MODERN).await_owned(0, 1, 2, 3)
            services[0].await_ready()
            seen.await_why(lambda told: told.cause == "member_joined")

            broker.stop()
            broker = Broker(tmp_path / "broker", properties={**RULES, "broker.rack": "rack-a"}).start()
            assert broker.bootstrap_servers == servers
            told = seen.await_why(says(f"The replicas of {group.topic} are on other racks"))
            assert (told.cause, told.is_avoidable) == ("racks_changed", False)

            services[0].kill()
            before = histories()
            group.admin.delete_topics([group.topic])[group.topic].result(HANG_S)
            services.append(start_observer(servers, tmp_path, "racks", 1))
            told = seen.await_why(says(f"{group.topic} was deleted"))
            assert histories()[: len(before)] == before
            named = [each for each in histories() if each["event"] == "topics_named"]
            assert [change["what"] for each in named for change in each["changes"]] == ["racks", "deleted"]
    finally:
        for service in services:
            print(service.log[-3_000:])
            if service.process.poll() is None:
                service.kill()
        broker.stop()
