"""This side of a conversation: a shard, and a clock that only `wait` moves."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from msgspec.structs import replace as replaced

from coordinator.base.config import Config
from coordinator.base.errors import ErrorCode
from coordinator.base.states import Phase
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, GroupTopics, TopicFact
from coordinator.messages.fields import NO_TOPIC
from coordinator.messages.outputs import Output
from coordinator.messages.requests import DescribeGroup, OffsetFetch, OffsetTopic, OffsetTopics, Received, Request
from coordinator.messages.responses import (
    AnyAnswer,
    AssignmentNotice,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DescribeGroupAnswer,
    GroupTopicsAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    RebalanceNotice,
    Reply,
    SyncGroupAnswer,
)
from coordinator.shard.shard import Shard
from streaming.gateway.protocol.topic_ids import id_text
from tests.coordinator.waking import wake
from tests.differential.language import Heard
from tests.differential.topics import SHARED
from tests.differential.transcript import ClientRequest, Description
from tests.differential.wire import MANY_GROUPS

SECRET = b"sixteen secret bytes"

SETTINGS = {
    "session": "group_consumer_session_timeout_ms",
    "beats": "group_consumer_heartbeat_interval_ms",
    "interval": "group_consumer_assignment_interval_ms",
}
"""The settings of groups, by their names in conversations."""


def config_of(rules: Mapping[str, str]) -> Config:
    """Return the config for those of Kafka's `rules` that this coordinator has as well."""
    named: dict[str, Any] = {name.replace(".", "_"): int(value) for name, value in rules.items()}
    return Config(**{name: value for name, value in named.items() if name in Config.__struct_fields__})


class Ours:
    """This coordinator, with those of Kafka's `rules` that it has as well."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._config = replaced(config_of(rules), clock_slack_ms=0)
        self._shard = Shard(0, 1, SECRET, self._config)
        self._facts = {name: TopicFact(name, _made_id(name), count) for name, count in SHARED.items()}
        self._now_ms = 1_000_000
        self._offset = self._made = 0
        self._asked: dict[str | None, ClientRequest] = {}
        self._fresh: list[Output] = []

    def ask(self, asked: ClientRequest) -> None:
        """Send a request with the facts about topics that a gateway has, and once more if it lacks some."""
        self._asked[asked.request.request_id] = asked
        request = self._with_ids(asked.request)
        outputs = self._step(request)
        if names := _asked_for(outputs):
            self._tell_facts(request.group_id, names)
            if any(answer.code for answer in _answers(outputs)):
                outputs = self._step(request)
        self._fresh += outputs

    def set(self, group_id: str, settings: Mapping[str, int]) -> None:
        """Change settings of the group."""
        self._config = replaced(self._config, **{SETTINGS[name]: ms for name, ms in settings.items()})
        self._shard = Shard(0, 1, SECRET, self._config, self._shard.to_bytes())

    def facts(self, names: Iterable[str]) -> list[TopicFact]:
        """Return the facts about topics."""
        return [self._facts.get(name, TopicFact(name)) for name in names]

    def change_topic(self, name: str, partitions: int, group_id: str, *, anew: bool) -> None:
        """Create, extend or delete a topic, and tell the group so, as a gateway and the driver do."""
        before = self._facts.get(name, TopicFact(name))
        self._made += 1
        topic_id = _made_id(f"{name}{self._made}") if anew or before.topic_id is None else before.topic_id
        self._facts[name] = TopicFact(name, topic_id if partitions else None, partitions)
        self._tell_facts(group_id, [name])
        if before.topic_id is not None and before.topic_id != self._facts[name].topic_id:
            gone = OffsetTopic(name, before.topic_id, self._facts[name].topic_id, self._now_ms)
            self._step(OffsetTopics(request_id="gone", reply_to="", group_id=group_id, topics=(gone,)))

    def _with_ids(self, request: Request) -> Request:
        """Return a fetch with the ids that its topics have now, as a gateway sends it."""
        if not isinstance(request, OffsetFetch) or request.topics is None:
            return request
        ids = {fact.topic: fact.topic_id or NO_TOPIC for fact in self.facts(t.topic for t in request.topics)}
        topics = tuple(replaced(t, topic_id=t.topic_id or ids[t.topic]) for t in request.topics)
        return replaced(request, topics=topics)

    def _tell_facts(self, group_id: str, names: Iterable[str]) -> None:
        outputs = self._step(
            GroupTopics(request_id="topics", reply_to="", group_id=group_id, topics=tuple(self.facts(names)))
        )
        self._fresh += [o for o in outputs if not (isinstance(o, Reply) and isinstance(o.answer, GroupTopicsAnswer))]

    def wait(self, ms: int, *, quietly: bool = False) -> None:
        """Move the clock. Events happen in the last millisecond, and not before."""
        until_ms = self._now_ms + ms
        assert self._shard.step([wake(until_ms - 1)], until_ms - 1) == [], "an event happened too early"
        outputs = self._shard.step([wake(until_ms)], until_ms)
        assert not (quietly and outputs), "an event happened while the side had to be quiet"
        self._fresh += outputs
        self._now_ms = until_ms

    def hear(self, expected: tuple[Heard, ...]) -> list[tuple[ClientRequest, AnyAnswer]]:
        heard = [(self._asked[a.request_id], a) for a in _answers(self._fresh)]
        self._fresh = []
        return [(asked, as_of(asked, answer)) for asked, answer in heard]

    def look(self, group_id: str) -> Description:
        (answer,) = _answers(self._step(DescribeGroup(request_id="look", reply_to="look", group_id=group_id)))
        assert isinstance(answer, DescribeGroupAnswer)
        if answer.state is not Phase.DEAD:
            return answer
        consumers = ConsumerGroupDescribe(request_id="look", reply_to="look", group_id=group_id)
        (described,) = _answers(self._step(consumers))
        assert isinstance(described, ConsumerGroupDescribeAnswer)
        return answer if described.code else described

    def _step(self, request: Request) -> list[Output]:
        self._offset += 1
        return self._shard.step([Received(self._offset, self._now_ms, request)], self._now_ms)


def _answers(outputs: list[Output]) -> list[AnyAnswer]:
    replies = [output.answer for output in outputs if isinstance(output, Reply)]
    return [answer for answer in replies if not isinstance(answer, RebalanceNotice | AssignmentNotice)]


def _asked_for(outputs: list[Output]) -> tuple[str, ...]:
    """Return the topics that the coordinator asks for, because it was never told of them."""
    answers = _answers(outputs)
    asks = [a.ask for a in answers if isinstance(a, ConsumerGroupHeartbeatAnswer) and a.ask]
    return tuple(name for ask in asks for name in ask.topics)


def _made_id(text: str) -> str:
    return id_text(blake2b(text.encode(), digest_size=16).digest())


def as_of(asked: ClientRequest, answer: AnyAnswer) -> AnyAnswer:
    """Return a response as an older version of the request has it, without the fields that this version lacks."""
    version = asked.version
    match answer:
        case JoinGroupAnswer() if version < 7:
            members = [replaced(m, group_instance_id=None) if version < 5 else m for m in answer.members]
            name = answer.protocol_name or ""
            return replaced(answer, protocol_type=None, protocol_name=name, members=tuple(members))
        case SyncGroupAnswer() if version < 5:
            return replaced(answer, protocol_type=None, protocol_name=None, fencing_token=0)
        case SyncGroupAnswer():  # Kafka's protocol has no field for a token
            return replaced(answer, fencing_token=0)
        case LeaveGroupAnswer() if version < 3:
            return replaced(answer, code=answer.members[0].code, members=())
        case OffsetCommitAnswer():
            partitions = [replaced(p, code=_older_code(p.code)) if version < 9 else p for p in answer.partitions]
            return replaced(answer, code=0, partitions=tuple(partitions))
        case OffsetFetchAnswer() if version >= MANY_GROUPS and answer.code:
            return replaced(answer, partitions=())
        case OffsetFetchAnswer() if version < 5:
            return replaced(answer, partitions=tuple(replaced(p, leader_epoch=-1) for p in answer.partitions))
        case ConsumerGroupDescribeAnswer() if version < 1:
            return replaced(answer, members=tuple(replaced(m, is_classic=False) for m in answer.members))
        case ConsumerGroupHeartbeatAnswer() if answer.code:
            return replaced(answer, member_id=None, member_epoch=0, heartbeat_interval_ms=0, assignment=None)
        case DescribeGroupAnswer() if version < 4:
            return replaced(answer, members=tuple(replaced(m, group_instance_id=None) for m in answer.members))
        case DescribeGroupAnswer(state=Phase.DEAD) if version >= 6:
            return replaced(answer, code=ErrorCode.GROUP_ID_NOT_FOUND.number)
        case ListGroupsAnswer() if version < 4:
            groups = [replaced(group, state=Phase.DEAD, type="") for group in answer.groups]
            return replaced(answer, groups=tuple(groups))
        case ListGroupsAnswer() if version < 5:
            return replaced(answer, groups=tuple(replaced(group, type="") for group in answer.groups))
    return answer


def _older_code(code: int) -> int:
    """Return the error code of earlier versions, in which a commit to an unknown group had a wrong generation."""
    missing, wrong = ErrorCode.GROUP_ID_NOT_FOUND.number, ErrorCode.ILLEGAL_GENERATION.number
    return wrong if code == missing else code
