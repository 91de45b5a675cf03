"""The record of a group from a rebalance on, read from the topics: its requests, its events, and its state then."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from coordinator.base.config import Config
from coordinator.base.hashing import shard_of
from coordinator.messages.events import AnyEvent, MemberJoined, RebalanceCompleted
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    Assignment,
    DescribePolicies,
    JoinGroup,
    Received,
    Request,
    SetPolicies,
    SyncGroup,
    Unreadable,
    Wake,
)
from coordinator.messages.responses import DescribePoliciesAnswer, JoinGroupAnswer, Reply
from coordinator.shard.shard import Shard
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import NotFound, RequestRefused, UserError
from streaming.kafka.reader import Progress, TopicReader
from streaming.views.api.fold import TopicKind
from streaming.views.api.view_reader import ViewReader
from streaming.wire.records import decode_request

SECRET = b"a trial of policies"
"""The secret of the member ids in a trial. Recorded ids are translated."""

SEEDING_MS = 1_000


class Recording(NamedTuple):
    """What the topics have of a group.

    Args:
        requests: The group's requests and the policies of its shard, in the order of the log.
        events: The group's events, in order.
        config: The settings of the coordinator.
        until_ms: The end of the trial, Unix milliseconds.
    """

    group_id: str
    requests: Sequence[Received]
    events: Sequence[AnyEvent]
    config: Config
    until_ms: int

    def after(self, start: "Start") -> Iterator[Received]:
        """Yield the requests after the start of a trial, up to its end."""
        return (each for each in self.requests if each.offset > start.offset and each.at_ms <= self.until_ms)


class Start(NamedTuple):
    """A rebalance after which the whole group is known, because all members have joined again.

    Args:
        offset: The offset of the leader's assignments in the log.
        joins: The last join of each member, the leader's first.
        plan: The leader's assignments.
    """

    at_ms: int
    generation_id: int
    offset: int
    joins: dict[str, JoinGroup]
    plan: tuple[Assignment, ...]


class Seeded(NamedTuple):
    """A shard with the group as it was at the start.

    Args:
        state: The bytes of the shard.
        ids: By recorded member id, the member id in the shard.
        generation_id: The generation in the shard.
    """

    state: bytes
    ids: dict[str, str]
    generation_id: int


class TrialShard(Shard):
    """A shard with one group, for requests from no log. Their offsets are above those of any log."""

    def __init__(self, config: Config, state: bytes | None = None) -> None:
        super().__init__(0, 1, SECRET, config, state)
        self._offsets = itertools.count(2**40 if state is None else 2**41)  # member ids follow from offsets

    def handle(self, at_ms: int, *requests: Request) -> list[Output]:
        """Handle requests of one time, and the deadlines up to it."""
        asked = [Received(next(self._offsets), at_ms, request) for request in requests]
        return self.step([*asked, Received(0, at_ms, Wake())], at_ms)

    def pass_time(self, until_ms: int) -> Iterator[Output]:
        """Handle the deadlines up to a time, each when it is due."""
        while (due_ms := self.next_deadline_ms) is not None and due_ms <= until_ms:
            yield from self.handle(due_ms)


def part_of_group(request: Request | Unreadable | Wake, group_id: str) -> Request | None:
    """Return the part of a record that concerns a group: its own request, the policies, or its heartbeats among those
    of many groups; None if there is none."""
    if isinstance(request, Heartbeats):
        rows = [each for each in request.each() if each.group_id == group_id] if request.is_even else []
        return Heartbeats.of(rows, request_id=request.request_id, reply_to=request.reply_to) if rows else None
    if isinstance(request, Unreadable | Wake):
        return None
    return request if isinstance(request, SetPolicies) or request.group_id == group_id else None


def find_start(recording: Recording, since_ms: int) -> Start:
    """Return the first rebalance since a time whose joins and assignments are all in the log.

    Raises:
        NotFound: No such rebalance is recorded.
    """
    for event in recording.events:
        if isinstance(event, RebalanceCompleted) and event.at_ms >= since_ms and event.leader and event.members_after:
            start = _start(recording, event)
            if start is not None and start.at_ms < recording.until_ms:
                return start
    raise NotFound(
        f"The log contains no whole rebalance of {recording.group_id} in this time, so its members are not known."
        " Requests are kept for a day. Choose a time before a rebalance with --since."
    )


def _start(recording: Recording, completed: RebalanceCompleted) -> Start | None:
    leader = completed.leader or ""
    synced = next((each for each in recording.requests if _is_plan(each.request, leader, completed)), None)
    if synced is None:
        return None
    joined = {e.member_id: e for e in recording.events if isinstance(e, MemberJoined)}
    joins: dict[str, JoinGroup] = {}
    for received in recording.requests:
        request = received.request
        if received.offset >= synced.offset:
            break
        if isinstance(request, JoinGroup):
            for member_id in [request.member_id] if request.member_id else _first_joins(request, received, joined):
                joins[member_id] = request
    members = [leader, *(each for each in completed.members_after if each != leader)]
    if not set(members) <= joins.keys():
        return None
    plan: Any = synced.request
    wanted = {member_id: joins[member_id] for member_id in members}
    return Start(completed.at_ms, completed.generation_id or 0, synced.offset, wanted, plan.assignments)


def _is_plan(request: object, leader: str, completed: RebalanceCompleted) -> bool:
    return (
        isinstance(request, SyncGroup)
        and bool(request.assignments)
        and (request.member_id, request.generation_id) == (leader, completed.generation_id)
    )


def _first_joins(request: JoinGroup, received: Received, joined: dict[str, MemberJoined]) -> list[str]:
    """Return the members that got their ids by a join without one: static members, and those of old clients."""
    who = request.client_id, request.client_host, request.group_instance_id
    return [
        e.member_id
        for e in joined.values()
        if e.at_ms == received.at_ms and (e.client_id, e.client_host, e.group_instance_id) == who
    ]


def seed(recording: Recording, start: Start) -> Seeded:
    """Make a shard with the group as it was at the start."""
    config = replace(recording.config, group_initial_rebalance_delay_ms=1, clock_slack_ms=0)
    shard = TrialShard(config)
    begin_ms = start.at_ms - SEEDING_MS
    joins = [
        replace(join, request_id=recorded, member_id="", require_known_member_id=False)
        for recorded, join in start.joins.items()
    ]
    outputs = [*shard.handle(begin_ms, *joins), *shard.handle(begin_ms + SEEDING_MS // 2)]
    answers = [answer for answer in answers_of(outputs) if isinstance(answer, JoinGroupAnswer)]
    ids = {str(answer.request_id): answer.member_id for answer in answers}
    generation_id = answers[0].generation_id
    plan = tuple(Assignment(ids.get(each.member_id, each.member_id), each.assignment) for each in start.plan)
    for recorded, member_id in ids.items():
        assignments = plan if recorded == next(iter(start.joins)) else ()
        sync = SyncGroup(request_id="", reply_to="", group_id=recording.group_id, generation_id=generation_id,
                         member_id=member_id, assignments=assignments)  # fmt: skip
        shard.handle(start.at_ms, sync)
    return Seeded(shard.to_bytes(), ids, generation_id)


def policies_at(recording: Recording, start: Start) -> SetPolicies | None:
    """Return the policies that the shard had at the start; None if the log has none."""
    of_log = (each.request for each in recording.requests if each.offset <= start.offset)
    return next((each for each in reversed(list(of_log)) if isinstance(each, SetPolicies)), None)


def recorded_shard(recording: Recording, seeded: Seeded) -> "TrialShard":
    """Return a shard with the settings of the recording, in the state of the start."""
    return TrialShard(replace(recording.config, clock_slack_ms=0), seeded.state)


def answers_of(outputs: Sequence[Output]) -> list[Any]:
    """Return the responses and notices among outputs."""
    return [output.answer for output in outputs if isinstance(output, Reply)]


# -- reading from the topics -------------------------------------------------------------------------------------------


REQUESTS_MAX = 1_000_000
"""The number of requests of a group in one trial: about a gigabyte of memory, and a minute."""

ANSWER_WAIT_S = 5.0


def read(
    settings: Settings, group_id: str, since_ms: int, until_ms: int, tell: Callable[[int, int], None]
) -> Recording:
    """Read what the topics have of a group in a period.

    Args:
        tell: Called with the number of records read and the approximate total, first of the events, then of the
            requests.

    Raises:
        NotFound: The events do not contain the group.
        RequestRefused: The group has sent too many requests in this period.
        BrokerUnreachable, NoCoordinator: No broker answers, or the coordinator's topics do not exist.
    """
    topics: tuple[TopicKind, ...] = ("events",)
    with ViewReader(settings, groups=[group_id], topics=topics) as reading:
        views = reading.catch_up(tell)
    group = views.groups.get(group_id)
    if group is None or not group.events:
        raise NotFound(f"The events contain no group {group_id}.")
    requests = _requests(settings, group_id, since_ms, until_ms, Progress(tell))
    if not any(isinstance(each.request, SetPolicies) for each in requests):
        requests[:0] = _policies(settings, group_id, since_ms)
    events = [event for event in group.events if event.at_ms <= until_ms]
    return Recording(group_id, requests, events, settings.group_config(), until_ms)


def _requests(settings: Settings, group_id: str, since_ms: int, until_ms: int, progress: Progress) -> list[Received]:
    """Return the requests of a group in a period, and all policies of its shard up to the end of the period."""
    topic, key = settings.requests_topic, group_id.encode()
    requests: list[Received] = []
    with TopicReader(
        settings, [topic], "coordinator-policy", partitions=lambda number: {shard_of(group_id, number)}
    ) as reader:
        for record in reader.backlog(progress=progress):
            if record.timestamp > until_ms:
                break
            if record.key != key and record.key != b"":
                continue
            request = part_of_group(decode_request(record.value), group_id)
            if request is None or (record.timestamp < since_ms and not isinstance(request, SetPolicies)):
                continue
            requests.append(Received(record.offset, record.timestamp, request))
            if len(requests) > REQUESTS_MAX:
                raise RequestRefused(
                    f"{group_id} has sent more than {REQUESTS_MAX} requests in this time. Choose a shorter one with"
                    " --since and --until."
                )
    return requests


def _policies(settings: Settings, group_id: str, since_ms: int) -> list[Received]:
    """Return the policies that were set before the log begins, if the coordinator is available and has some."""
    asked = DescribePolicies(request_id="", reply_to="", client_id="coordinator-policy")
    try:
        with Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at) as transport:
            answers = transport.ask_every_shard(asked, ANSWER_WAIT_S)
    except UserError:
        return []
    answer = answers[shard_of(group_id, len(answers))]
    if not isinstance(answer, DescribePoliciesAnswer) or answer.code or not 0 < answer.made_ms <= since_ms:
        return []
    kept = SetPolicies(request_id="", reply_to="", made_ms=answer.made_ms, policies=answer.policies)
    return [Received(-1, answer.made_ms, kept)]
