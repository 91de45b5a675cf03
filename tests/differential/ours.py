"""This side of a conversation: a shard, and a clock that only `wait` moves."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace as replaced

from coordinator.config import Config
from coordinator.errors import ErrorCode
from coordinator.outputs import (
    AnyAnswer,
    DescribeGroupAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    Output,
    RebalanceNotice,
    Reply,
    SyncGroupAnswer,
)
from coordinator.phases import Phase
from coordinator.requests import DescribeGroup, Received, Request
from coordinator.shard import Shard
from tests.coordinator.waking import wake
from tests.differential.language import Heard
from tests.differential.transcript import ClientRequest

SECRET = b"sixteen secret bytes"


def config_of(rules: Mapping[str, str]) -> Config:
    """Return the config for those of Kafka's `rules` that this coordinator has as well."""
    named: dict[str, Any] = {name.replace(".", "_"): int(value) for name, value in rules.items()}
    return Config(**{name: value for name, value in named.items() if name in Config.__struct_fields__})


class Ours:
    """This coordinator, with those of Kafka's `rules` that it has as well."""

    def __init__(self, rules: Mapping[str, str]) -> None:
        self._shard = Shard(0, 1, SECRET, replaced(config_of(rules), clock_slack_ms=0))
        self._now_ms = 1_000_000
        self._offset = 0
        self._asked: dict[str | None, ClientRequest] = {}
        self._fresh: list[Output] = []

    def ask(self, asked: ClientRequest) -> None:
        self._asked[asked.request.request_id] = asked
        self._fresh += self._step(asked.request)

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

    def look(self, group_id: str) -> DescribeGroupAnswer:
        (answer,) = _answers(self._step(DescribeGroup(request_id="look", reply_to="look", group_id=group_id)))
        assert isinstance(answer, DescribeGroupAnswer)
        return answer

    def _step(self, request: Request) -> list[Output]:
        self._offset += 1
        return self._shard.step([Received(self._offset, self._now_ms, request)], self._now_ms)


def _answers(outputs: list[Output]) -> list[AnyAnswer]:
    replies = [output.answer for output in outputs if isinstance(output, Reply)]
    return [answer for answer in replies if not isinstance(answer, RebalanceNotice)]


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
        case OffsetFetchAnswer() if version < 5:
            return replaced(answer, partitions=tuple(replaced(p, leader_epoch=-1) for p in answer.partitions))
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
