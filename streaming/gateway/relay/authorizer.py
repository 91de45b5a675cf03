"""The decision whether a request may go to a broker. Requests for the coordinator's topics are always refused.

    client authenticates by     the brokers see     its rights are decided by
    SASL, passed through        the client          the brokers
    nothing                     nobody              the brokers
    a certificate, or nothing   the gateway         `Authorizer`, from the brokers' access control lists

In every row, requests for the coordinator's topics are refused, by name and by id. Metadata does not contain them. A
refused client gets Kafka's own error for the case, in the form of the API's response; without such a form, its
connection is closed.

Bytes are relayed unchanged, except a Metadata or a DescribeCluster from which something must be removed.
"""

import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from coordinator.base.access import ANY, CLUSTER_NAME
from coordinator.messages.consumer_requests import TopicFact
from streaming.gateway.protocol.frames import BadFrame
from streaming.gateway.protocol.messages import Header, decode
from streaming.gateway.protocol.produce import Produce
from streaming.gateway.protocol.schemas import structure_of
from streaming.gateway.relay.error_responses import TOPIC_REFUSED, Refusal, no_such_session
from streaming.gateway.relay.fetch_sessions import FetchSessions, TopicIds, showing_no_session
from streaming.gateway.relay.relayed_apis import RELAYED, Unread
from streaming.gateway.relay.required_acls import (
    CLUSTER,
    CREATE,
    DESCRIBE,
    NO_ID,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    RequiredAcl,
    id_in,
)
from streaming.gateway.security.acls import AccessLists, Client
from streaming.kafka.topic_facts import facts_in

MAY_NOT_CREATE = 4
"""From this version on, Metadata has a field that says whether to create missing topics."""

Lists = Callable[[], AccessLists]
"""A function that returns the latest access control lists of the brokers."""

Renew = Callable[[], Awaitable[None]]
"""Requests the lists, and returns when they are as of a time after the call."""

StoreFacts = Callable[[Mapping[str, TopicFact]], None]


class Hears(Protocol):
    """A function that is called with a complete response of a broker before it is sent to the client."""

    def __call__(self, message: Any) -> None: ...


class Judged(NamedTuple):
    """The decision about a request.

    Args:
        frame: The frame to relay, without its length; None if the client gets an answer instead.
        answer: The response to a refused request.
        has_answer: Whether a broker responds to the relayed frame.
        reads: Called with the beginning of the broker's response; returns whether that was sufficient.
        alters: Called with the broker's response, if the gateway reads it.
        is_denied: Whether the access control lists do not allow a part of the request. Newer ones might.
    """

    frame: bytes | None
    answer: ApiMessage | None = None
    has_answer: bool = True
    reads: Callable[[memoryview], bool] | None = None
    alters: Hears | None = None
    is_denied: bool = False


class Authorizer:
    """The policy of all connections of a gateway.

    Args:
        own_topics: The coordinator's topics, to which no client has access.
        lists: The access control lists; None if the brokers decide themselves, because they see the client.
        store_facts: Called with the facts about topics in a response to Metadata.
        renew: Requests the access control lists again; None without lists.
    """

    def __init__(
        self,
        own_topics: Collection[str],
        lists: Lists | None = None,
        store_facts: StoreFacts = lambda facts: None,
        renew: Renew | None = None,
    ) -> None:
        self._own, self._lists, self._store_facts, self.renew = frozenset(own_topics), lists, store_facts, renew
        self._ids = TopicIds()

    def judge(self, header: Header, frame: bytes, client: Client, sessions: FetchSessions) -> Judged:
        """Decide about a complete request.

        Args:
            frame: The frame without its length.
            sessions: The fetch sessions of the client's connection.

        Raises:
            Malformed: The request cannot be read.
            BadFrame: The request is refused, and has no form of an error response.
        """
        match header.api_key:
            case Produce.API_KEY:
                return self._judge_produce(Produce.of(frame, header.version), frame, client)
            case FetchRequest.API_KEY:
                return self._judge_fetch(header, frame, client, sessions)
            case MetadataRequest.API_KEY:
                return self._narrow_metadata(header, frame, client)
            case DescribeClusterRequest.API_KEY if self._lists:
                return self._narrow_cluster(header, frame)
        row = RELAYED.get(header.api_key)
        if row is None or not (row.is_checked or self._lists is None):
            raise BadFrame(f"API {header.api_key} is not relayed where the brokers see the gateway and not {client}")
        is_read = not isinstance(row.request, Unread)
        if not is_read and not self._lists:
            return Judged(frame)
        message = decode(row.request, frame, header) if is_read else None
        refused = self._refused(row.required_acls(message, self._ids.name), client)
        return self._refuse(header.api_key, message, refused, client) if refused else Judged(frame)

    def judge_piece(self, produce: Produce, client: Client) -> None:
        """Check the topics of a large Produce that have been read since its last piece.

        Raises:
            BadFrame: A topic is refused. The connection is closed, and the broker has only the beginning of the
                request.
        """
        if refused := self._refused(RELAYED[Produce.API_KEY].required_acls(produce, self._ids.name), client):
            raise BadFrame(f"a large Produce of {client.principal} is refused {Refusal(refused, self._ids.name)}")
        produce.topics.clear()

    def _refuse(self, api_key: int, message: Any, refused: list[RequiredAcl], client: Client) -> Judged:
        refusal = Refusal(refused, self._ids.name)
        if (refused_response := RELAYED[api_key].refused) is None:
            raise BadFrame(f"API {api_key} is refused to {client.principal}: {refusal}")
        return Judged(None, refused_response(message, refusal), is_denied=any(map(self._is_denied, refused)))

    def may_see(self, client: Client, topic: str) -> bool:
        """Return whether a client may know that a topic exists."""
        return not self._refused([RequiredAcl(DESCRIBE, TOPIC, topic)], client)

    def may_use_transaction(self, client: Client, transactional_id: str) -> bool:
        """Return whether a client may write in transactions of an id, as far as the gateway has to decide it."""
        return not self._refused([RequiredAcl(WRITE, TRANSACTIONAL_ID, transactional_id)], client)

    # -- access --------------------------------------------------------------------------------------------------------

    def _refused(self, required_acls: Iterable[RequiredAcl], client: Client) -> list[RequiredAcl]:
        lists = self._lists() if self._lists else None
        return [required for required in required_acls if self._is_refused(required, client, lists)]

    def _is_refused(self, required: RequiredAcl, client: Client, lists: AccessLists | None) -> bool:
        operation, resource, name, or_on_cluster = required
        if resource is TOPIC and (name is None or name in self._own):
            return True
        if operation is None:
            return name == ANY  # all topics include the coordinator's
        if lists is None:
            return False
        if or_on_cluster and lists.allow(client, or_on_cluster, CLUSTER, CLUSTER_NAME):
            return False
        if resource is TOPIC and name == ANY:
            return not lists.allow_some(client, operation, resource)
        return not lists.allow(client, operation, resource, name or "")

    def _is_denied(self, required: RequiredAcl) -> bool:
        """Return whether a need is refused by the access control lists, and not because the topic is the coordinator's
        or has an unknown id."""
        is_of_no_list = required.resource is TOPIC and (required.name is None or required.name in self._own)
        return self._lists is not None and required.operation is not None and not is_of_no_list

    # -- produce and fetch ---------------------------------------------------------------------------------------------

    def _judge_produce(self, produce: Produce, frame: bytes, client: Client) -> Judged:
        refused = self._refused(RELAYED[Produce.API_KEY].required_acls(produce, self._ids.name), client)
        if not refused:
            return Judged(frame, has_answer=produce.acks != 0)
        if produce.acks == 0:
            raise BadFrame(f"a Produce of {client.principal} requests no response, and is refused")
        return self._refuse(Produce.API_KEY, produce, refused, client)

    def _judge_fetch(self, header: Header, frame: bytes, client: Client, sessions: FetchSessions) -> Judged:
        """Decide about a Fetch, which names all its topics unless it continues a session.

        A full Fetch ends the session that it contains. If that session is not one of this connection, the broker gets
        none.
        """
        row = RELAYED[FetchRequest.API_KEY]
        message = decode(row.request, frame, header)
        required_acls = list(row.required_acls(message, self._ids.name))
        session_id, epoch = getattr(message, "session_id", 0), getattr(message, "session_epoch", -1)
        is_full = session_id == 0 or epoch <= 0
        earlier = sessions.topics_of(session_id) if session_id else ()
        if earlier is None and not is_full:
            return Judged(None, no_such_session(message))
        if refused := self._refused(required_acls, client):
            return self._refuse(FetchRequest.API_KEY, message, refused, client)
        topics = (
            {required.name for required in required_acls if required.resource is TOPIC and required.name}
            if self._lists
            else set()
        )
        if is_full:
            if earlier is None:
                frame = showing_no_session(frame, header.version)
            return Judged(frame, reads=sessions.reads_session(header.version, topics) if epoch == 0 else None)
        if self._refused((RequiredAcl(READ, TOPIC, each) for each in earlier or ()), client):
            return Judged(None, no_such_session(message))  # the client then names all its topics, and gets each error
        sessions.add(session_id, topics)
        return Judged(frame)

    # -- narrowed requests ---------------------------------------------------------------------------------------------

    def _narrow_cluster(self, header: Header, frame: bytes) -> Judged:
        message = decode(DescribeClusterRequest, frame, header)
        if not message.include_cluster_authorized_operations:
            return Judged(frame)
        fields = _fields(message, header.version, include_cluster_authorized_operations=False)
        return Judged(_framed(DescribeClusterRequest(version=header.version, **fields), header))

    def _narrow_metadata(self, header: Header, frame: bytes, client: Client) -> Judged:
        """Remove from a Metadata the hidden topics and the forbidden flags: creation of topics and authorized
        operations."""
        message = decode(MetadataRequest, frame, header)
        is_of_all = message.topics is None or (header.version == 0 and not message.topics)
        entries = message.topics or []
        left = [entry for entry in entries if id_in(entry) or self.may_see(client, entry.name)]
        hidden = [entry.name for entry in entries if not id_in(entry) and not self.may_see(client, entry.name)]
        is_denied = self._lists is not None and not self._own.issuperset(hidden)
        changes = self._less(message, header.version, client, [each.name for each in left if not id_in(each)])
        if header.version < MAY_NOT_CREATE and changes:
            hidden, left = [entry.name for entry in entries], []
        if not hidden and not changes:
            alters = partial(self._see_metadata, client, [], None)
            return Judged(frame, alters=alters)
        topics = None if is_of_all else [_topic(entry) for entry in left]
        if header.version == 0 and topics is None:
            topics = []
        fields = _fields(message, header.version, **changes, topics=topics)
        fields = {name: value for name, value in fields.items() if name in _names(MetadataRequest, header.version)}
        wanted = None if is_of_all or header.version else frozenset(each.name for each in left)
        alters = partial(self._see_metadata, client, hidden, wanted)
        narrowed = _framed(MetadataRequest(version=header.version, **fields), header)
        return Judged(narrowed, alters=alters, is_denied=is_denied)

    def _less(self, message: Any, version: int, client: Client, names: list[str]) -> dict[str, Any]:
        """Return the changed fields of a Metadata, which the brokers take for the gateway's own."""
        if not self._lists:
            return {}
        flags = ("include_topic_authorized_operations", "include_cluster_authorized_operations")
        changes: dict[str, Any] = {flag: False for flag in flags if getattr(message, flag, False)}
        creates = getattr(message, "allow_auto_topic_creation", True)
        if creates and self._refused(
            (RequiredAcl(CREATE, TOPIC, name, or_on_cluster=CREATE) for name in names), client
        ):
            changes["allow_auto_topic_creation"] = False
        return changes

    def _see_metadata(self, client: Client, hidden: list[str], wanted: Collection[str] | None, message: Any) -> None:
        """Store the topics' ids from a response, and remove the topics that the client may not see.

        Args:
            hidden: Topics in the client's request that were not relayed.
            wanted: The relayed topics, for a version in which a broker may return more; None for all.
        """
        identified = [topic for topic in message.topics if topic.name and _id_of(topic) is not None]
        for topic in identified:
            self._ids.learn(topic.topic_id.bytes, topic.name)
        self._store_facts(facts_in(identified))
        message.topics = [
            topic
            for topic in message.topics
            if not topic.name or (self.may_see(client, topic.name) and (wanted is None or topic.name in wanted))
        ]
        made = MetadataResponse.MetadataResponseTopic
        message.topics += [made(error_code=TOPIC_REFUSED, name=name, topic_id=uuid.UUID(int=0)) for name in hidden]


def _id_of(topic: Any) -> bytes | None:
    """Return the id of a topic in a response to Metadata; None in a version without ids, and for a missing topic."""
    topic_id: uuid.UUID | None = getattr(topic, "topic_id", None)
    return topic_id.bytes if topic_id is not None and topic_id.int else None


def _topic(entry: Any) -> Any:
    made = MetadataRequest.MetadataRequestTopic
    return made(name=entry.name, topic_id=uuid.UUID(bytes=id_in(entry) or NO_ID))


def _names(kind: Any, version: int) -> Collection[str]:
    return {field.name for field in structure_of(kind, version).fields}


def _fields(message: Any, version: int, **changes: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in _names(type(message), version)} | changes


def _framed(message: Any, header: Header) -> bytes:
    message.with_header(correlation_id=header.correlation_id, client_id=header.client_id)
    return bytes(message.encode(header=True))
