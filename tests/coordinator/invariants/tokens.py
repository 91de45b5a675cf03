"""I2 for stores outside Kafka: fencing tokens grow from owner to owner, also after a group's end."""

from coordinator.base.states import Phase
from coordinator.messages.events import MemberFenced, MemberJoined, RebalanceCompleted
from coordinator.messages.group_records import GroupRecord, Published
from coordinator.messages.policy_events import SeatTaken
from coordinator.messages.responses import Reply, SyncGroupAnswer
from coordinator.state.classic_group import Group
from tests.coordinator.invariants.step import NONE, KnownRequests, Step

JSON_INTEGER_MAX = 2**53 - 1


class TokensGrow:
    """I2, P3: each token of a generation, a seat or a static member's new process is above all earlier ones in a group.

    So a later owner of a partition has a higher token than every earlier one, even if the group was forgotten in
    between. A repeated sync of a member gets the same token.
    """

    def __init__(self, asked: KnownRequests | None = None) -> None:
        self.asked = asked or KnownRequests()
        self.highest: dict[str, int] = {}
        self.given: dict[tuple[str, str], int] = {}
        self.early: dict[str, int] = {}
        """By group, the token of a generation whose event is still to come: parked syncs are answered before it."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            match output:
                case RebalanceCompleted():
                    self._is_new(output, self.early.pop(output.group_id or "", output.fencing_token))
                    for member_id in output.members_after:
                        self.given[output.group_id or "", member_id] = output.fencing_token
                case MemberFenced():
                    self._is_new(output, output.fencing_token)
                    self.given[output.group_id or "", output.replaced_by] = output.fencing_token
                case SeatTaken():
                    if self.given.get((output.group_id or "", output.member_id)) != output.fencing_token:
                        self._is_new(output, output.fencing_token)  # else it takes several seats at once
                    self.given[output.group_id or "", output.member_id] = output.fencing_token
                case MemberJoined():
                    self.given[output.group_id or "", output.member_id] = self.highest.get(output.group_id or "", 0)
                case Published(record=GroupRecord(state=Phase.STABLE)):
                    self._fits({m.member_id: m.fencing_token for m in output.record.members}, output.group_id)
                case Reply(answer=SyncGroupAnswer(code=code)) if code == NONE:
                    self._hears(self.asked.by(output), output.answer)
                case Reply(answer=SyncGroupAnswer()):
                    assert not output.answer.fencing_token, f"an error has further fields: {output.answer}"
        assert not self.early, f"no generation has the tokens {self.early}"
        for group in (step.groups or {}).values():
            self._looks_right(group)

    def _is_new(self, output: RebalanceCompleted | MemberFenced | SeatTaken, expected: int) -> None:
        group_id, token = output.group_id or "", output.fencing_token
        assert token == expected, f"members got {expected}: {output}"
        highest = self.highest.get(group_id, 0)
        assert highest < token <= JSON_INTEGER_MAX, f"token {token} after {highest}: {output}"
        self.highest[group_id] = token

    def _hears(self, request: object, answer: SyncGroupAnswer) -> None:
        group_id, member_id = request.group_id, request.member_id  # type: ignore[attr-defined]
        if answer.fencing_token == self.given.get((group_id, member_id)):
            return
        expected = self.early.setdefault(group_id, answer.fencing_token)
        assert answer.fencing_token == expected, f"{member_id} gets {answer.fencing_token}, others got {expected}"
        assert expected > self.highest.get(group_id, 0), f"{member_id} gets {expected}, which is not its own token"

    def _fits(self, shown: dict[str, int], group_id: str) -> None:
        for member_id, token in shown.items():
            given = self.given.get((group_id, member_id))
            assert token == given, f"{member_id} got {given}, and {token} is published"

    def _looks_right(self, group: Group) -> None:
        """Check the tokens of a group: one that was forgotten for long counts from 0, and its members from the time."""
        assert group.token in (0, self.highest.get(group.group_id)), f"{group.group_id} gave no token {group.token}"
        tokens = {m.member_id: m.fencing_token for m in group.members.values()}
        assert max(tokens.values(), default=0) <= group.token
        if group.phase is Phase.STABLE:
            self._fits(tokens, group.group_id)
