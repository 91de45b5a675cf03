"""Kafka's side of a conversation: its own coordinator, with requests over plain sockets.

Kafka answers the requests of one connection in order, so a parked request blocks its connection; a client that sends
another request uses another connection. A parked request has no response, so silence is its only sign. The group is
described three times to make sure that Kafka has handled a request. With one network thread and one handler (`RULES`),
the first description may overtake the request, and the second one cannot. A response to the request is sent before the
third description.
"""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from coordinator.base.states import Phase
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, TopicFact
from coordinator.messages.requests import DescribeGroup
from coordinator.messages.responses import AnyAnswer, ConsumerGroupDescribeAnswer, DescribeGroupAnswer
from streaming.gateway.protocol.topic_ids import id_text
from tests.differential import wire
from tests.differential.language import Heard
from tests.differential.transcript import ClientRequest, Description
from tests.system.waiting import HANG_S, wait_until

RULES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "3",
    "group.coordinator.append.linger.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.max.size": "3",
    "offsets.topic.num.partitions": "1",
    "num.network.threads": "1",
    "num.io.threads": "1",
}
"""The broker's settings, which keep conversations short and requests in order."""

LATE_S = 10.0
"""The longest delay of an event that no client is notified of, in seconds."""

POLL_S = 0.005
AHEAD_S = 0.02
"""The time by which the wait for an event begins before the earliest time of the event, in seconds."""

PUBLISHED_S = 0.3
"""The time in which the coordinator learns of changes that the broker's metadata already have, in seconds."""

SETTINGS = {
    "session": "consumer.session.timeout.ms",
    "beats": "consumer.heartbeat.interval.ms",
    "interval": "consumer.assignment.interval.ms",
}
"""The settings of a group, by their names in conversations."""

EARLY_MS = 5
"""The most by which an event may seem early with a clock of whole milliseconds."""

Address = tuple[str, int]


class Connection:
    """A connection of one client, with one request at a time."""

    def __init__(self, address: Address, who: str) -> None:
        self.who = self._client_id = who
        self.asked: ClientRequest | None = None
        self._number = 0
        self._response: type = object
        self._socket = socket.create_connection(address, timeout=HANG_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.call(ApiVersionsRequest(), 0)  # the broker treats a connection differently until its first request

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def call(self, message: wire.Message, version: int) -> wire.Message:
        """Send a message and return its response."""
        self._send(message, version)
        return self._receive()

    def ask(self, asked: ClientRequest) -> None:
        """Send a request without a wait for the response."""
        self.asked = asked
        self._client_id = asked.request.client_id or self.who
        self._send(wire.message(asked.request, asked.version), asked.version)

    def answer(self) -> tuple[ClientRequest, AnyAnswer]:
        """Wait for the response to the request that was sent, and return it."""
        assert self.asked is not None, "no request was sent"
        asked, self.asked = self.asked, None
        return asked, wire.answer(asked.request, asked.version, self._receive())

    def _send(self, message: wire.Message, version: int) -> None:
        self._number += 1
        message.with_header(correlation_id=self._number, client_id=self._client_id)
        self._socket.sendall(message.encode(version=version, header=True, framed=True))
        self._response = message.header.get_response_class()

    def _receive(self) -> wire.Message:
        said = self._response.decode(self._read(int.from_bytes(self._read(4))), header=True)  # type: ignore[attr-defined]
        assert said.header.correlation_id == self._number
        return said

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, f"the broker closed the connection of {self.who}; it could not read {self.asked}"
            data += more
        return data


class Theirs:
    """Kafka's coordinator."""

    looks = 3
    """The number of descriptions after which all effects of a request are known."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connections: list[Connection] = []
        self._onlooker = self._connect("onlooker")
        self._group_id = ""
        self._seen: Description | None = None
        self._began_s, self._passed_ms = time.monotonic(), 0
        self._waits_ms = 0

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def ask(self, asked: ClientRequest) -> None:
        self._waits_ms = 0
        idle = (c for c in self._connections if c.who == asked.who and c.asked is None)
        (next(idle, None) or self._connect(asked.who)).ask(asked)

    def wait(self, ms: int, *, quietly: bool = False) -> None:
        self._passed_ms += ms
        self._waits_ms = 0 if quietly else ms
        if quietly:
            time.sleep(ms / 1000)

    def hear(self, expected: tuple[Heard, ...]) -> list[tuple[ClientRequest, AnyAnswer]]:
        """Wait for the expected responses, or for a change of the group by time; return all responses that come."""
        wanted = Counter(heard.name.split("#")[0] for heard in expected if heard.name)
        heard: list[tuple[ClientRequest, AnyAnswer]] = []
        until_s = time.monotonic() + self._waits_ms / 1000 + HANG_S
        while wanted - Counter(asked.who for asked, _ in heard) and time.monotonic() < until_s:
            heard += self._answers(until_s - time.monotonic())
        if self._waits_ms:
            if not wanted:
                self._await_change(time.monotonic() + self._waits_ms / 1000 + LATE_S)
            early_ms = self._passed_ms - (time.monotonic() - self._began_s) * 1000
            assert early_ms < EARLY_MS, f"an event happened {early_ms:.0f} ms early"
        for _ in range(self.looks if any(c.asked for c in self._connections) else 0):
            self.look(self._group_id)
        return heard + list(self._answers(0))

    def _await_change(self, until_s: float) -> None:
        before = self._seen
        time.sleep(max(0, self._began_s + self._passed_ms / 1000 - AHEAD_S - time.monotonic()))
        while self.look(self._group_id) == before and time.monotonic() < until_s:
            time.sleep(POLL_S)

    def look(self, group_id: str) -> Description:
        """Describe the group, in a version that returns no error for an unknown group or one of the consumer protocol.

        A group in PreparingRebalance without members has a join deadline of now (protocol.md 3.5). Wait for its end.
        """
        request, until_s = DescribeGroup(request_id="look", reply_to="", group_id=group_id), time.monotonic() + 1
        while True:
            self._onlooker.ask(ClientRequest("look", "onlooker", request, 5))
            _, answer = self._onlooker.answer()
            assert isinstance(answer, DescribeGroupAnswer)
            if answer.state is not Phase.PREPARING or answer.members or time.monotonic() > until_s:
                self._group_id = group_id
                self._seen = answer if answer.state is not Phase.DEAD else self._look_for_consumers(group_id) or answer
                return self._seen

    def _look_for_consumers(self, group_id: str) -> ConsumerGroupDescribeAnswer | None:
        """Describe a group of the consumer protocol; None if it is not one."""
        request = ConsumerGroupDescribe(request_id="look", reply_to="", group_id=group_id)
        self._onlooker.ask(ClientRequest("look", "onlooker", request, 1))
        _, answer = self._onlooker.answer()
        assert isinstance(answer, ConsumerGroupDescribeAnswer)
        return None if answer.code else answer

    # -- topics and settings -------------------------------------------------------------------------------------------

    def facts(self, names: Iterable[str]) -> list[TopicFact]:
        """Return the ids and partitions of topics, from the broker's metadata."""
        topics = [MetadataRequest.MetadataRequestTopic(topic_id=None, name=name) for name in names]
        said = self._onlooker.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
        return [TopicFact(t.name, *_id_and_count(t)) for t in said.topics]

    def change_topic(self, name: str, partitions: int, group_id: str, *, anew: bool) -> None:
        """Create, extend or delete a topic, and wait until the broker's metadata have it so."""
        (before,) = self.facts([name])
        with KafkaAdminClient(bootstrap_servers="{}:{}".format(*self._address)) as admin:
            if before.partitions and (anew or not partitions):
                admin.delete_topics([name])
                self._await_partitions(name, 0)
            if before.partitions and partitions and not anew:
                admin.create_partitions({name: partitions})
            elif partitions:
                admin.create_topics({name: {"num_partitions": partitions}})
        self._await_partitions(name, partitions)
        time.sleep(PUBLISHED_S)

    def _await_partitions(self, name: str, count: int) -> None:
        wait_until(lambda: self.facts([name])[0].partitions == count)

    def set(self, group_id: str, settings: Mapping[str, int]) -> None:
        """Change settings of the group."""
        changed = {SETTINGS[name]: str(ms) for name, ms in settings.items()}
        with KafkaAdminClient(bootstrap_servers="{}:{}".format(*self._address)) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.GROUP, group_id, configs=changed)])
        time.sleep(PUBLISHED_S)

    # -- connections ---------------------------------------------------------------------------------------------------

    def _answers(self, within_s: float) -> Iterator[tuple[ClientRequest, AnyAnswer]]:
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                if connection.asked:
                    selector.register(connection, selectors.EVENT_READ, connection)
            if selector.get_map():
                for key, _ in selector.select(within_s):
                    yield key.data.answer()

    def _connect(self, who: str) -> Connection:
        self._connections.append(Connection(self._address, who))
        return self._connections[-1]


def _id_and_count(topic: wire.Message) -> tuple[str | None, int]:
    """Return the id and the number of partitions of a topic in the metadata; none if it does not exist."""
    is_there = not topic.error_code and topic.partitions
    return (id_text(topic.topic_id.bytes), len(topic.partitions)) if is_there else (None, 0)
