"""The bytes of the state and of the records, from the core alone. They are the same on every machine."""

from collections.abc import Sequence

from coordinator.base.config import Config
from coordinator.messages.outputs import Output
from coordinator.messages.requests import OffsetCommit, OffsetToCommit, Received, Request
from coordinator.messages.responses import JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from streaming.wire.records import OutputTopics, encode_request, pack
from tests.benchmarks.figures import Figures
from tests.benchmarks.members import TOPIC, Member, members
from tests.coordinator.waking import wake

GROUPS, EACH = 100, 10
OFFSET = 1_000_000
WAKE_MS = 1_000
TOPICS = OutputTopics("replies", "groups", "events", "requests")


def bytes_of_state_and_records() -> Figures:
    """Return the bytes of a group, a member and an offset in the state, and of the records of each request."""
    ten, twenty = _Groups(GROUPS, EACH), _Groups(GROUPS, 2 * EACH)
    rejoin_bytes, _ = ten.settle(), twenty.settle()
    per_member = (twenty.state_bytes() - ten.state_bytes()) / (GROUPS * EACH)
    per_group = (ten.state_bytes() - _Groups(0, 0).state_bytes()) / GROUPS - EACH * per_member
    heartbeat_bytes, before = ten.send([m.heartbeat(_id(i)) for i, m in enumerate(ten.members)]), ten.state_bytes()
    commit_bytes = ten.send([_commit(m, _id(i)) for i, m in enumerate(ten.members)])
    return {
        "state_bytes_per_group": per_group,
        "state_bytes_per_member": per_member,
        "state_bytes_per_offset": (ten.state_bytes() - before) / len(ten.members),
        "heartbeat_bytes": heartbeat_bytes / len(ten.members),
        "commit_bytes": commit_bytes / len(ten.members),
        "rejoin_bytes": rejoin_bytes / len(ten.members),
    }


class _Groups:
    """Groups of one shard, and the bytes of their requests and of all that the shard publishes."""

    def __init__(self, groups: int, each: int) -> None:
        self.members = members(groups, each)
        self._shard = Shard(0, 1, b"x" * 32, Config())
        self._offset = self._now_ms = 0

    def state_bytes(self) -> int:
        return len(self._shard.to_bytes())

    def settle(self) -> int:
        """Make all members join and sync, and return the bytes of the records."""
        size, outputs = self._step([m.join_group(_id(i)) for i, m in enumerate(self.members)])
        while not (replies := [output for output in outputs if isinstance(output, Reply)]):
            self._now_ms += WAKE_MS  # the initial delay passes
            outputs = self._shard.step([wake(self._now_ms)], self._now_ms)
            size += _published(outputs)
        for reply in replies:
            assert isinstance(reply.answer, JoinGroupAnswer), f"the response to a join is {reply.answer}"
            self.members[int(reply.answer.request_id or 0)].take(reply.answer)
        return size + self.send([m.sync_group(_id(i)) for i, m in enumerate(self.members)])

    def send(self, requests: Sequence[Request]) -> int:
        """Handle requests that get a response at once, and return the bytes of the records."""
        size, outputs = self._step(requests)
        answers = [output.answer for output in outputs if isinstance(output, Reply)]
        assert len(answers) == len(requests), f"{len(answers)} of {len(requests)} requests were answered"
        assert not any(answer.code for answer in answers), "no request is refused"
        return size

    def _step(self, requests: Sequence[Request]) -> tuple[int, Sequence[Output]]:
        received = [Received(self._offset + i, self._now_ms, request) for i, request in enumerate(requests)]
        self._offset += len(requests)
        outputs = list(self._shard.step(received, self._now_ms))
        sent = sum(len(request.group_id.encode()) + len(encode_request(request)) for request in requests)
        return sent + _published(outputs), outputs


def _published(outputs: Sequence[Output]) -> int:
    """Return the bytes of the keys and values that the outputs have on the topics."""
    packs = list(pack(outputs, TOPICS, 0))
    return sum(len(data or b"") for each in packs for data in (*each.keys, *each.values))


def _commit(member: Member, request_id: str) -> OffsetCommit:
    """Return the commit of the member's own partition."""
    request = member.commit(request_id)
    assert isinstance(request, OffsetCommit), "a member's commit is an OffsetCommit request"
    offsets = (OffsetToCommit(TOPIC.decode(), member.number, OFFSET),)
    return OffsetCommit(**{**{name: getattr(request, name) for name in request.__struct_fields__}, "offsets": offsets})


def _id(number: int) -> str:
    return f"{number:012}"
