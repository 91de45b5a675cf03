"""The observer at a broker that refuses every operation that is not granted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePattern, ResourceType

from streaming.errors import Exit
from streaming.kafka.acls import SOURCE_TOPIC, Role
from streaming.observe.source import have_source_made
from tests.system.conftest import Service
from tests.system.reading import Reader
from tests.system.secured import SecuredBroker, secured_broker
from tests.system.test_acls import AUTHORIZED, administrators, grant_by_kafkas_tool
from tests.system.test_observe_kills import start_observer
from tests.system.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.long, pytest.mark.nightly]

READ_SOURCE = (ResourceType.TOPIC, SOURCE_TOPIC, ACLResourcePatternType.LITERAL, ACLOperation.READ)
DESCRIBE_GROUP = (ResourceType.GROUP, "observed", ACLResourcePatternType.PREFIXED, ACLOperation.DESCRIBE)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Start such a broker, and grant ana the printed rights of an observer with Kafka's own tool."""
    folder = tmp_path_factory.mktemp("strict")
    with secured_broker(folder, **AUTHORIZED) as strict:
        settings = administrators(strict).model_copy(update={"topic_prefix": "observed"})
        have_source_made(settings)
        grant_by_kafkas_tool(strict, folder, Role.OBSERVER, "ana", to_create=True, settings=settings)
        yield strict


def start(strict: SecuredBroker, folder: Path, number: int = 0) -> Service:
    access: dict[str, Any] = dict(strict.access("SASL_PLAINTEXT", "SCRAM-SHA-512", "ana"))
    return start_observer(str(access.pop("bootstrap_servers")), folder, "observed", number, **access)


@contextmanager
def without(strict: SecuredBroker, right: tuple[Any, str, Any, Any]) -> Iterator[None]:
    """Remove a right for as long as the `with` block runs."""
    kind, name, pattern, operation = right
    acl = ACL("User:ana", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name, pattern))
    with KafkaAdminClient(bootstrap_servers=strict.addresses["PLAINTEXT"]) as admin:
        ((_, removed, _),) = admin.delete_acls([acl])
        assert len(removed) == 1
        try:
            yield
        finally:
            assert not admin.create_acls([acl])["failed"]


def test_observer_works_with_the_printed_rights(strict: SecuredBroker, tmp_path: Path) -> None:
    service = start(strict, tmp_path)
    service.await_ready()
    servers = {"bootstrap.servers": strict.addresses["PLAINTEXT"]}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(HANG_S)
    consumer = Consumer({**servers, "group.id": "g", "client.id": "bo", "group.protocol": "consumer"})
    consumer.subscribe(["orders"])
    settings = administrators(strict).model_copy(update={"topic_prefix": "observed"})
    reader = Reader(settings, "g")

    def is_named() -> bool:
        consumer.poll(0.1)
        records = reader.everything().groups[-1:]
        return any(each["members"] and each["members"][0]["assigned"] == {"orders": [0]} for each in records)

    wait_until(is_named, account=lambda: service.log)
    consumer.close()
    assert service.stop() == Exit.DONE, service.log


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (READ_SOURCE, f"Read on {SOURCE_TOPIC}"),
        (DESCRIBE_GROUP, "let it describe the groups whose ids begin with observed"),
    ],
    ids=["source", "group"],
)
def test_missing_right_is_named_and_no_start_is_tried_again(
    strict: SecuredBroker, tmp_path: Path, right: tuple[Any, str, Any, Any], words: str
) -> None:
    with without(strict, right):
        service = start(strict, tmp_path)
        assert service.process.wait(HANG_S) == Exit.NEEDS_A_PERSON, service.log
        assert words in service.log
