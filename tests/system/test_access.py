"""Access rules: with the same rules, clients of the gateway get the responses of the brokers' own coordinator.

The tests use one broker with Kafka's StandardAuthorizer. Its access control lists are our coordinator's rules. Each
user sends each request twice, to the brokers' coordinator and to ours. Every field of the two responses is compared.
"""

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.admin.groups import DescribeGroupsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from typer.testing import CliRunner

from coordinator.messages import requests as asked
from coordinator.messages.events import AccessDenied
from streaming.administration.rules import keep_in_step, rules_of_brokers, set_rules
from streaming.cli.main import app
from streaming.client import Transport
from streaming.config.settings import Settings
from streaming.gateway import Gateway
from streaming.wire.records import decode_event
from streaming.wire.signing import UNSIGNED
from tests.differential.wire import message
from tests.system.conftest import Service, start_service
from tests.system.secured import STRANGE_USER, USERS, SecuredBroker, secured_broker
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long

ADMIN, ANA, BO = STRANGE_USER, "ana", "bo"
KEY = "k3y-" * 10
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
}
ACLS = [
    # user  may     do           what                   by name
    (ANA, "ALLOW", "READ",     ResourceType.GROUP, "g-", "PREFIXED"),
    (ANA, "DENY",  "READ",     ResourceType.GROUP, "g-secret", "LITERAL"),
    (ANA, "ALLOW", "DELETE",   ResourceType.GROUP, "g-deleted", "LITERAL"),
    (ANA, "ALLOW", "READ",     ResourceType.TOPIC, "t", "LITERAL"),
    (BO,  "ALLOW", "DESCRIBE", ResourceType.GROUP, "*", "LITERAL"),
    (BO,  "ALLOW", "DESCRIBE", ResourceType.TOPIC, "u", "LITERAL"),
    (BO,  "ALLOW", "READ",     ResourceType.TOPIC, "t", "LITERAL"),
    ("*", "ALLOW", "READ",     ResourceType.GROUP, "anybody's", "LITERAL"),
]  # fmt: skip
ASKERS = (ANA, BO, ADMIN)
GROUPS = ("g-a", "g-secret", "g-deleted", "other", "anybody's", "nowhere")


def binding(user: str, permission: str, operation: str, kind: ResourceType, name: str, pattern: str) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType[pattern], f"User:{user}", "*", AclOperation[operation],
        AclPermissionType[permission],
    )  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("access"), **AUTHORIZER) as broker:
        admin = AdminClient({"bootstrap.servers": broker.addresses["PLAINTEXT"]})
        for made in admin.create_topics([NewTopic(name, 3, 1) for name in "tu"]).values():
            made.result()
        for made in admin.create_acls([binding(*acl) for acl in ACLS]).values():
            made.result()
        yield broker


@pytest.fixture(scope="module")
def service(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("coordinator")
    (file := folder / "key").write_text(KEY)
    wanted = {
        "bootstrap_servers": secured.addresses["PLAINTEXT"], "topic_prefix": "guarded", "access": "rules",
        "access_key_file": str(file), "group_initial_rebalance_delay_ms": 100,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COORDINATOR_SUPER_USERS", json.dumps([f"User:{ADMIN}", "User:root"]))
        patched.setenv("COORDINATOR_PRINCIPAL", "User:root")
        service = start_service(folder, **wanted)
        try:
            service.await_ready()
            yield service
        finally:
            service.kill()


@pytest.fixture(scope="module")
def gateway(secured: SecuredBroker, service: Service) -> Iterator[Gateway]:
    """Start a gateway that reaches the brokers as its own user; its clients also have their own users."""
    access = secured.access("SASL_PLAINTEXT", "SCRAM-SHA-256", ADMIN)
    settings = Settings.load(
        **access, topic_prefix="guarded", gateway_port=0, gateway_hold_ms=120_000, access="rules",
        access_key_file=service.settings.access_key_file,
    )  # fmt: skip
    with Gateway(settings) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def in_step(service: Service) -> Iterator[list[str]]:
    """Copy the brokers' rules to our coordinator for as long as the tests run, and yield the messages about it."""
    told: list[str] = []
    stopping = threading.Event()
    watching = threading.Thread(target=keep_in_step, args=(service.settings, 5.0, told.append, stopping))
    watching.start()
    try:
        wait_until(lambda: told)
        yield told
    finally:
        stopping.set()
        watching.join()


class Client:
    """A user's connection, whose requests are whole messages of the protocol."""

    def __init__(self, connection: socket.socket, user: str) -> None:
        self._connection, self._number = connection, 0
        mechanism = "SCRAM-SHA-256"
        self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        name = user.replace("=", "=3D").replace(",", "=2C")  # kafka-python does not escape it
        words = {"sasl_plain_username": name, "sasl_plain_password": USERS.get(user, user)}
        client = get_sasl_mechanism(mechanism)(sasl_mechanism=mechanism, **words)
        while not client.is_done():
            told = self._call(SaslAuthenticateRequest(auth_bytes=client.auth_bytes()), 1)
            assert told.error_code == 0, told
            client.receive(told.auth_bytes)

    def ask(self, request: Any, version: int) -> Any:
        """Return the response without the fields that differ each time."""
        return plain(self._call(request, version).to_dict())

    def _call(self, request: Any, version: int) -> Any:
        self._number += 1
        request.with_header(correlation_id=self._number, client_id="tester")
        frame = bytes(request.encode(version=version, header=True))
        self._connection.sendall(len(frame).to_bytes(4) + frame)
        with self._connection.makefile("rb") as frames:
            answer = frames.read(int.from_bytes(frames.read(4)))
        kind = type(request).__name__.replace("Request", "Response")
        module = __import__(type(request).__module__, fromlist=[kind])
        return getattr(module, kind).decode(answer, version=version, header=True)


@contextmanager
def connected(address: str, user: str) -> Iterator[Client]:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
        yield Client(connection, user)


NOT_COMPARED = {"throttle_time_ms", "error_message", "host", "port", "member_id", "correlation_id"}


def plain(told: Any) -> Any:
    if isinstance(told, dict):
        return {name: plain(value) for name, value in told.items() if name not in NOT_COMPARED}
    if isinstance(told, list | tuple | set | frozenset):
        return sorted(map(plain, told), key=repr) if told and isinstance(next(iter(told)), dict | int) else list(told)
    return told


WHO = {"request_id": "", "reply_to": ""}
PLACES = (asked.TopicPartitions("t", (0, 9)), asked.TopicPartitions("u", (0,)), asked.TopicPartitions("nowhere", (0,)))


def commit(group_id: str, *topics: str) -> asked.OffsetCommit:
    offsets = tuple(asked.OffsetToCommit(topic, partition, 5) for topic in topics for partition in (0, 9))
    return asked.OffsetCommit(**WHO, group_id=group_id, offsets=offsets)


def said_to(client: Client, group_id: str) -> dict[str, Any]:
    """Send every kind of request about a group, and return the responses."""
    join = asked.JoinGroup(
        **WHO, group_id=group_id, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
        protocols=(asked.Protocol("range"),),
    )  # fmt: skip
    questions: list[tuple[str, Any, int]] = [
        ("find", FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id, "other"]), 4),
        ("find one", FindCoordinatorRequest(key_type=0, key=group_id), 3),
        ("join", message(join, 5), 5),
        ("sync", message(asked.SyncGroup(**WHO, group_id=group_id, generation_id=1, member_id="m"), 3), 3),
        ("beat", message(asked.Heartbeat(**WHO, group_id=group_id, generation_id=1, member_id="m"), 4), 4),
        ("leave", message(asked.LeaveGroup(**WHO, group_id=group_id, members=(asked.Leaving("m"),)), 4), 4),
        ("commit", message(commit(group_id, "u", "t", "nowhere"), 8), 8),
        ("commit to another's topic", message(commit(group_id, "u"), 8), 8),
        ("commit to none", message(commit(group_id, "nowhere"), 8), 8),
        ("fetch", message(asked.OffsetFetch(**WHO, group_id=group_id, topics=PLACES), 7), 7),
        ("fetch all", message(asked.OffsetFetch(**WHO, group_id=group_id), 7), 7),
        ("fetch of many", message(asked.OffsetFetch(**WHO, group_id=group_id, topics=PLACES), 8), 8),
        ("describe", DescribeGroupsRequest(groups=[group_id], include_authorized_operations=True), 5),
        ("forget", message(asked.OffsetDelete(**WHO, group_id=group_id, topics=PLACES), 0), 0),
        ("forget of none", message(asked.OffsetDelete(**WHO, group_id=group_id, topics=PLACES[2:]), 0), 0),
        ("list", message(asked.ListGroups(**WHO), 4), 4),
        ("delete", message(asked.DeleteGroup(**WHO, group_id=group_id), 2), 2),
    ]
    return {label: client.ask(question, version) for label, question, version in questions}


def await_coordinators(*addresses: str) -> None:
    for address in addresses:
        with connected(address, ADMIN) as client:
            question = message(asked.OffsetFetch(**WHO, group_id="g-a", topics=PLACES[:1]), 7)
            wait_until(lambda client=client, q=question: client.ask(q, 7)["error_code"] == 0)


Answers = dict[tuple[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def answers(secured: SecuredBroker, gateway: Gateway, in_step: list[str]) -> Answers:
    """Return the responses of the brokers and of the gateway, by group and user. All groups are asked at once."""
    addresses = secured.addresses["SASL_PLAINTEXT"], gateway.bootstrap_servers
    await_coordinators(*addresses)

    def of_group(group_id: str) -> Answers:
        return {(group_id, user): [answers_at(each, group_id, user) for each in addresses] for user in ASKERS}

    with ThreadPoolExecutor(len(GROUPS)) as pool:
        return dict(itertools.chain.from_iterable(each.items() for each in pool.map(of_group, GROUPS)))


def answers_at(address: str, group_id: str, user: str) -> dict[str, Any]:
    """Make the group, unless it is `nowhere`, and return the responses to a user. Of a list, only this group counts."""
    if group_id != "nowhere":
        with connected(address, ADMIN) as admin:
            admin.ask(message(commit(group_id, "t", "u"), 8), 8)
    with connected(address, user) as client:
        heard = said_to(client, group_id)
    with connected(address, ADMIN) as admin:
        admin.ask(message(asked.DeleteGroup(**WHO, group_id=group_id), 2), 2)
    heard["list"]["groups"] = [each for each in heard["list"]["groups"] if each["group_id"] == group_id]
    return heard


@pytest.mark.parametrize("user", ASKERS)
@pytest.mark.parametrize("group_id", GROUPS)
def test_responses_equal_those_of_the_brokers_own_coordinator(answers: Answers, user: str, group_id: str) -> None:
    """S61: each API follows its own rules. All groups exist except `nowhere`."""
    theirs, ours = answers[group_id, user]
    assert ours == theirs


def test_every_group_that_a_user_may_see_is_listed(answers: Answers) -> None:
    """S61: the comparison above would hold too if no list had a group."""
    listed = {user: {group for group in GROUPS if answers[group, user][1]["list"]["groups"]} for user in ASKERS}
    assert listed == {ADMIN: {*GROUPS}, BO: {*GROUPS} - {"nowhere"}, ANA: {"g-a", "g-secret", "g-deleted", "anybody's"}}


def test_only_one_of_two_users_may_consume(secured: SecuredBroker, gateway: Gateway, in_step: list[str]) -> None:
    """At the brokers and through the gateway, one stock consumer gets its partitions and one gets an error."""
    for address in (secured.addresses["SASL_PLAINTEXT"], gateway.bootstrap_servers):
        ends = {user: consumed(secured, address, user) for user in (ANA, BO)}
        assert ends == {ANA: 3, BO: KafkaError.GROUP_AUTHORIZATION_FAILED}


def consumed(secured: SecuredBroker, address: str, user: str) -> int:
    """Join a group with a stock consumer, and return the number of assigned partitions or the error's code."""
    access = secured.access("SASL_PLAINTEXT", "SCRAM-SHA-256", user) | {"bootstrap_servers": address}
    consumer = Consumer({**Settings.load(**access).librdkafka_arguments(), "group.id": "g-consumed"})
    ended: list[int] = []
    topic = "t"
    consumer.subscribe([topic], on_assign=lambda _, partitions: ended.append(len(partitions)))

    def poll() -> bool:
        told = consumer.poll(0.2)
        if told is not None and told.error() and told.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            ended.append(told.error().code())
        return bool(ended)

    with closing(consumer):
        wait_until(poll, account=lambda: (user, address, ended))
    return ended[0]


def test_rules_follow_changes_at_the_brokers(
    secured: SecuredBroker, service: Service, gateway: Gateway, in_step: list[str]
) -> None:
    admin = AdminClient({"bootstrap.servers": secured.addresses["PLAINTEXT"]})
    question = message(asked.Heartbeat(**WHO, group_id="g-later", generation_id=1, member_id="m"), 4)
    rule = binding(BO, "ALLOW", "READ", ResourceType.GROUP, "g-later", "LITERAL")
    with connected(gateway.bootstrap_servers, BO) as bo:
        assert bo.ask(question, 4) == {"error_code": 30}
        for made in admin.create_acls([rule]).values():
            made.result()
        wait_until(lambda: bo.ask(question, 4) == {"error_code": 25}, account=lambda: in_step)
        deleted = [rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host, rule.operation]
        from confluent_kafka.admin import AclBindingFilter

        for gone in admin.delete_acls([AclBindingFilter(*deleted, rule.permission_type)]).values():
            gone.result()
        wait_until(lambda: bo.ask(question, 4) == {"error_code": 30}, account=lambda: in_step)
    wait_until(lambda: len(in_step) >= 3, 60, lambda: in_step)  # reported when all shards have the rules
    assert rules_of_brokers(service.settings)


def test_unsigned_principal_is_anonymous(service: Service, in_step: list[str]) -> None:
    """A record without a signature is refused, and an event names the reason: anybody could have written the record."""
    kafka = service.settings.kafka_client_arguments()
    with Transport(kafka, "guarded") as transport:
        heartbeat = asked.Heartbeat(**WHO, group_id="g-a", generation_id=1, member_id="m")
        said = transport.ask(asked.DescribeGroup(**WHO, group_id="g-a", principal=f"User:{ADMIN}"), HANG_S)
        assert (said.error, said.error_message) == ("GROUP_AUTHORIZATION_FAILED", UNSIGNED)
        assert transport.ask(heartbeat, HANG_S).error == "GROUP_AUTHORIZATION_FAILED"
        heartbeat = asked.Heartbeat(**WHO, group_id="anybody's", generation_id=1, member_id="m")
        assert transport.ask(heartbeat, HANG_S).code == 25
    with closing(KafkaConsumer(service.settings.events_topic, **kafka, auto_offset_reset="earliest")) as reader:
        denied: list[AccessDenied] = []

        def read() -> bool:
            events = [decode_event(r.value) for some in reader.poll(timeout_ms=200).values() for r in some]
            denied.extend(event for event in events if isinstance(event, AccessDenied))
            return any(event.why == UNSIGNED for event in denied)

        wait_until(read, account=lambda: denied)
    assert {f"User:{ADMIN}", "User:ANONYMOUS"} <= {event.principal for event in denied}


def test_rules_are_set_and_shown_by_command(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`access set` accepts the output of `access show`. This test replaces the brokers' rules, so it runs late."""
    (file := tmp_path / "rules.toml").write_text(
        '[[rules]]\nprincipal = "User:ana"\noperation = "READ"\nresource = "GROUP"\nname = "by-hand"\n'
    )
    settings = service.settings
    for name in ("bootstrap_servers", "topic_prefix", "access_key_file"):
        monkeypatch.setenv(f"COORDINATOR_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.setenv("COORDINATOR_PRINCIPAL", "User:root")
    done = CliRunner().invoke(app, ["access", "set", str(file)])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, ["access", "show"])
    assert (shown.exit_code, shown.stdout) == (0, file.read_text())
    monkeypatch.setenv("COORDINATOR_PRINCIPAL", "User:eve")
    refused = CliRunner().invoke(app, ["access", "show"])
    assert "does not allow User:eve to show or set rules" in str(refused.exception)
    assert set_rules(settings, ()) == settings.request_partitions


def test_policies_are_set_and_shown_by_command(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """policies.md 3.3: `policy set` accepts the output of `policy show`; only administrators may set them."""
    (file := tmp_path / "policies.toml").write_text('[[policies]]\nname = "orders"\nsuccession = {}\n')
    for name in ("bootstrap_servers", "topic_prefix", "access_key_file"):
        monkeypatch.setenv(f"COORDINATOR_{name.upper()}", str(getattr(service.settings, name)))
    monkeypatch.setenv("COORDINATOR_PRINCIPAL", "User:root")
    done = CliRunner().invoke(app, ["policy", "set", str(file)])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(app, ["policy", "show"])
    assert (shown.exit_code, shown.stdout) == (0, file.read_text())
    assert CliRunner().invoke(app, ["policy", "freeze", "orders", "--for", "1h"]).exit_code == 0
    frozen = CliRunner().invoke(app, ["policy", "of", "orders"])
    assert "succession = {}\nfreeze = { until = 20" in frozen.stdout
    assert CliRunner().invoke(app, ["policy", "thaw", "orders"]).exit_code == 0
    assert CliRunner().invoke(app, ["policy", "of", "orders"]).stdout == file.read_text()
    monkeypatch.setenv("COORDINATOR_PRINCIPAL", "User:eve")
    refused = CliRunner().invoke(app, ["policy", "set", str(file)])
    assert "does not allow User:eve to show or set policies" in str(refused.exception)


def test_no_file_holds_the_key(service: Service, gateway: Gateway) -> None:
    """The log, the plans and the checkpoint do not hold the key. This test is the last, so that they are not empty."""
    readable = [service.log_file, service.ready_file, *service.checkpoint.rglob("*")]
    assert not [file for file in readable if KEY.encode() in content(file)]


def content(file: Path) -> bytes:
    """Return a file's content, or nothing for a folder or for a file that the running query has just deleted."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return b""
