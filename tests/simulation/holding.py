"""10.9, 7: a held answer equals what a heartbeat at that moment would hear.

A gateway holds an answer without news, and sends a heartbeat for the member (`again`) when a notice tells it to. So as
long as no notice has come, such a heartbeat must bring no news: its answer is the held one. The gateway's own class
decides which answers are held. Members of simulations send such heartbeats also without a notice.
"""

from collections import defaultdict

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import GroupConverted
from coordinator.messages.outputs import Output
from coordinator.messages.responses import AssignmentNotice, ConsumerGroupHeartbeatAnswer, Reply
from streaming.gateway.members.member_state import Acknowledgements
from tests.coordinator.invariants.step import GONE, KnownRequests, Step, forgotten


class HeldAnswersStayTrue:
    """A heartbeat that repeats a held one hears the same, unless a notice was sent to its member."""

    def __init__(self) -> None:
        self.asked = KnownRequests()
        self.gateways: defaultdict[str, Acknowledgements] = defaultdict(Acknowledgements)
        """What the gateways know of the members of a group."""

        self.held: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """By group and member, the epoch of the held answer, which has nothing else that the member would see."""

    def watch(self, step: Step) -> None:
        self.asked.note(step)
        for output in step.news:
            if not isinstance(output, Reply):
                self._note(output)
            elif isinstance(output.answer, AssignmentNotice):
                self.held[output.answer.group_id].pop(output.answer.member_id, None)
            elif isinstance(output.answer, ConsumerGroupHeartbeatAnswer):
                self._answered(self.asked.by(output), output.answer)

    def _note(self, output: Output) -> None:
        if isinstance(output, Reply) or output.group_id is None:
            return
        if forgotten(output) or isinstance(output, GroupConverted):
            self.gateways.pop(output.group_id, None)
            self.held.pop(output.group_id, None)
        elif isinstance(output, GONE):
            self.held[output.group_id].pop(output.member_id, None)

    def _answered(self, request: ConsumerGroupHeartbeat, answer: ConsumerGroupHeartbeatAnswer) -> None:
        gateway, held = self.gateways[request.group_id], self.held[request.group_id]
        member_id = answer.member_id or request.member_id
        before = held.pop(member_id, None)
        if before is not None and _is_of_gateway(request) and request.member_epoch == before:
            has_no_news = answer.code == 0 and answer.assignment is None and answer.pending != "revoking"
            epoch = answer.member_epoch if has_no_news else None
            assert epoch == before, f"the gateway holds an answer with the epoch {before}, and would hear {answer}"
        gateway.record(request, answer)
        if gateway.may_hold(request, answer):
            held[member_id] = answer.member_epoch


def _is_of_gateway(request: ConsumerGroupHeartbeat) -> bool:
    """Return whether a request has only the fields that a gateway sends."""
    is_bare = request.topic_partitions is None and request.regex_topics is None and request.regex_error is None
    return request.again and request.is_plain and is_bare and request.group_instance_id is None
