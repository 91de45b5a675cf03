"""The reading commands of `coordinator groups`: they fold the output topics into views, and write rows.

They need only the brokers. So they work while the coordinator is unavailable.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from coordinator.base.access import Pattern
from coordinator.base.states import GroupType, Phase
from coordinator.messages.group_records import Topology
from coordinator.messages.responses import DescribeGroupAnswer
from streaming.cli.lib.lines import MEMBERS, OFFSETS, PARTITIONS, PartitionLine, member_lines, partition_lines
from streaming.cli.lib.options import GroupOrder
from streaming.cli.lib.output import Column, Output, OutputFormat
from streaming.cli.lib.times import moment
from streaming.config.settings import Settings
from streaming.errors import BrokerUnreachable, Exit, NotFound, UserError
from streaming.logs import tell
from streaming.moments import unix_ms
from streaming.progress import Work, shown
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.api.fold import TopicKind
from streaming.views.api.rows import GroupDetail, GroupSummary
from streaming.views.api.view_reader import ViewReader
from streaming.views.history.vacancies import HoldRow
from streaming.views.history.waits import in_short
from streaming.views.sentences.rebalances import hold_in_words, quarantine_in_words
from streaming.views.state.fields import known
from streaming.views.state.lag import EndOffsets, Ends, committed_offsets, lag
from streaming.views.text import by_topic, counted, escape


class BadPattern(UserError):
    """The text is not a regular expression."""

    exit_code = Exit.USAGE


class Wanted(NamedTuple):
    """The groups of a command: by id, or by a regular expression that matches the whole id."""

    names: tuple[str, ...] = ()
    is_regex: bool = False

    @property
    def ids(self) -> tuple[str, ...] | None:
        """The ids; None if they are unknown before the topics are read."""
        return None if self.is_regex or not self.names else self.names

    def of(self, views: Views) -> list[GroupView]:
        """Return the groups; without names all existing groups.

        Raises:
            NotFound: A named group does not exist, or no group matches.
        """
        if not self.names:
            return views.present()
        if self.is_regex:
            found = [group for group in views.present() if self.has(group.group_id)]
            if not found:
                raise NotFound(f"No group matches {escape(' '.join(self.names))}.")
            return found
        return [present(views, group_id) for group_id in dict.fromkeys(self.names)]

    def has(self, group_id: str | None) -> bool:
        """Return whether a group is one of them. None stands for no group, which is only one of all."""
        if not self.names:
            return True
        if self.is_regex:
            return group_id is not None and any(pattern.fullmatch(group_id) for pattern in self.patterns())
        return group_id in self.names

    def patterns(self) -> list[re.Pattern[str]]:
        """Return the regular expressions; none if the names are ids.

        Raises:
            BadPattern: A name is not a regular expression.
        """
        return [_pattern(name) for name in self.names] if self.is_regex else []


@cache
def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadPattern(f"{escape(text)} is not a regular expression: {error}.") from None


def folded(settings: Settings, group_ids: Collection[str] | None = None, *, events: bool = True) -> Views:
    """Read the topics, and return views of some groups or of all, with or without their history.

    Raises:
        BrokerUnreachable: No broker answers.
        NoCoordinator: The topics do not exist.
    """
    topics: tuple[TopicKind, ...] = ("groups", "events") if events else ("groups",)
    views = Views(only=None if group_ids is None else frozenset(group_ids))
    with (
        shown(Work("Reading the topics", "records")) as work,
        ViewReader(settings, views, groups=group_ids, topics=topics) as reading,
    ):
        return reading.catch_up(work.report)


def present(views: Views, group_id: str) -> GroupView:
    """Return an existing group.

    Raises:
        NotFound: The group does not exist.
    """
    group = views.groups.get(group_id)
    if group is None or not group.is_there:
        raise NotFound(f"Consumer group '{escape(group_id)}' does not exist.")
    return group


def remembered(views: Views, group_id: str) -> GroupView:
    """Return a group that exists or has a history.

    Raises:
        NotFound: The group does not exist and has no history.
    """
    group = views.groups.get(group_id)
    if group is None or not (group.is_there or group.events):
        raise NotFound(f"Consumer group '{escape(group_id)}' does not exist.")
    return group


def ends_of(settings: Settings, groups: Iterable[GroupView]) -> Ends:
    """Return both ends of the logs of the groups' partitions from the brokers; none if no broker answers. Store the
    positions of share groups in these."""
    groups = list(groups)
    wanted = committed_offsets(groups)
    try:
        _add_share_offsets(settings, [group for group in groups if group.type is GroupType.SHARE])
        return EndOffsets(settings).bounds(wanted) if wanted else {}
    except BrokerUnreachable as error:
        tell(f"The lag is unknown: {error}")
        return {}


def _add_share_offsets(settings: Settings, groups: list[GroupView]) -> None:
    if not groups:
        return
    from streaming.kafka.share_offsets import ShareOffsetReader  # only this function needs this slow import

    with closing(ShareOffsetReader(settings)) as reader:
        positions = reader.of([group.group_id for group in groups])
    for group in groups:
        group.share_offsets = positions.get(group.group_id, {})


BEYOND_SHOWN = 3
"""The partitions that one warning names. The rest are only counted."""


def warn_beyond_end(groups: Iterable[GroupView], ends: Ends) -> None:
    """Print a warning to standard error for each group with committed offsets beyond the end of a log."""
    for group in groups:
        committed = {place: offset.offset for place, offset in sorted(group.committed().items())}
        found = [place for place, offset in committed.items() if (lag(ends.get(place), offset) or 0) < 0]
        if not found:
            continue
        shown = [
            f"{escape(topic)} {partition} at {committed[topic, partition]:,}, and the log ends at"
            f" {ends[topic, partition].end:,}"
            for topic, partition in found[:BEYOND_SHOWN]
        ]
        more = [counted(len(found) - BEYOND_SHOWN, "more partition")] if len(found) > BEYOND_SHOWN else []
        tell(
            f"Warning: Consumer group '{escape(group.group_id)}' has committed beyond the end of a log"
            f" ({'; '.join([*shown, *more])}): the topic was made anew, or the offset is wrong."
        )


# -- groups ------------------------------------------------------------------------------------------------------------


def _protocol(summary: GroupSummary) -> str | None:
    return summary.protocol_name or None


GROUPS = (
    Column("GROUP", lambda s: s.group_id, is_chosen=True),
    Column("TYPE", lambda s: s.type),
    Column("STATE", lambda s: s.state),
    Column("GENERATION", lambda s: s.generation_id, is_number=True),
    Column("ASSIGNMENT-EPOCH", lambda s: s.assignment_epoch, is_number=True, is_optional=True),
    Column("PROTOCOL", _protocol, is_chosen=True),
    Column("MEMBERS", lambda s: s.members, is_number=True),
    Column("TOPICS", lambda s: s.topics, is_number=True),
    Column("PARTITIONS", lambda s: s.partitions, is_number=True),
    Column("TOTAL-LAG", lambda s: s.total_lag, is_number=True),
    Column("GONE-UNREAD", lambda s: s.total_gone_unread or None, is_number=True, is_optional=True),
    Column("BEYOND-END", lambda s: s.partitions_beyond_end or None, is_number=True, is_optional=True),
    Column("PROTOCOL-TYPE", lambda s: s.protocol_type or None, is_chosen=True, is_wide=True),
    Column("SINCE", lambda s: s.since_ms, is_wide=True, is_time=True),
    Column("REBALANCES-1H", lambda s: s.rebalances_1h, is_number=True, is_wide=True),
    Column("LAST-REBALANCE", lambda s: s.last_rebalance_ms, is_wide=True, is_time=True),
    Column("LAST-CAUSE", lambda s: s.last_cause, is_wide=True),
    Column("KEPT-BY", lambda s: s.kept_by, is_optional=True),
)


_SORTED: dict[GroupOrder, Callable[[GroupSummary], Any]] = {
    GroupOrder.group: lambda s: s.group_id,
    GroupOrder.lag: lambda s: -(s.total_lag or 0),
    GroupOrder.members: lambda s: -s.members,
    GroupOrder.rebalances: lambda s: -s.rebalances_1h,
}


def list_groups(settings: Settings, wanted: Wanted, order: GroupOrder, output: Output) -> None:
    """Show a line for each group. Read the events, which are many, only for columns about rebalances."""
    needs_events = output.form is not OutputFormat.table or order is GroupOrder.rebalances
    views = folded(settings, wanted.ids, events=needs_events)
    groups, now = wanted.of(views), unix_ms()
    ends = ends_of(settings, groups)
    show_groups(sorted_by(order, [answers.summary(group, ends, now) for group in groups]), output)
    warn_beyond_end(groups, ends)


def sorted_by(order: GroupOrder, summaries: Iterable[GroupSummary]) -> list[GroupSummary]:
    """Return the groups in an order, the largest value first."""
    return sorted(summaries, key=_SORTED[order])


def show_groups(summaries: list[GroupSummary], output: Output) -> None:
    """Write a line for each group."""
    if output.form is OutputFormat.json:
        output.answer(summaries)
    else:
        output.rows(GROUPS, summaries)


# -- one group ---------------------------------------------------------------------------------------------------------

Fact = tuple[str, object]

AWAITED_WAIT_S = 3.0

REBALANCING = frozenset({Phase.PREPARING, Phase.COMPLETING, Phase.ASSIGNING, Phase.RECONCILING})
"""The states in which a description is incomplete."""

_TITLES = {GroupType.STREAMS: "Streams", GroupType.SHARE: "Share"}


def say_state(group: GroupView) -> None:
    """Print to standard error why a description is incomplete, as Kafka's tool does."""
    name = f"{_TITLES.get(group.type, 'Consumer')} group '{escape(group.group_id)}'"
    if group.state is Phase.EMPTY:
        tell(f"{name} has no active members.")
    elif group.state is Phase.NOT_READY:
        tell(f"Warning: {name} is not ready: topics of its topology are missing, or have wrong numbers of partitions.")
    elif group.state in REBALANCING:
        tell(f"Warning: {name} is rebalancing.")


def describe(settings: Settings, wanted: Wanted, output: Output) -> None:
    """Show groups in detail: a block of facts, and all partitions and members."""
    views = folded(settings, wanted.ids)
    groups, now = wanted.of(views), unix_ms()
    ends = ends_of(settings, groups)
    if output.form is OutputFormat.json:
        details = [_detail(settings, group, ends, now) for group in groups]
        output.answer(details if wanted.is_regex or len(groups) > 1 else details[0])
    elif output.form is OutputFormat.csv:
        output.rows(PARTITIONS, [line for group in groups for line in partition_lines(group, ends)])
    else:
        for number, group in enumerate(groups):
            if number:
                output.line()
            further = [*_facts_of_an_answer(_description_of(settings, group)), *_missing(settings, group)]
            show_group(group, ends, now, output, further)
    for group in groups:
        say_state(group)
    warn_beyond_end(groups, ends)


def show_group(group: GroupView, ends: Ends, now: int, output: Output, further: Iterable[Fact] = ()) -> None:
    """Write one group for people, with further facts that the topics do not contain."""
    output.pairs([*_facts(group, ends, now), *further])
    if lines := partition_lines(group, ends):
        output.line()
        output.rows(PARTITIONS, lines)


def _detail(settings: Settings, group: GroupView, ends: Ends, now: int) -> GroupDetail:
    detail = answers.detail(group, ends, now)
    if told := _description_of(settings, group):
        detail.awaited = list(told.awaited)
        detail.policy = known(told.policy)
    detail.missing_topics = _missing_topics(settings, group)
    return detail


def _missing(settings: Settings, group: GroupView) -> Iterator[Fact]:
    if missing := _missing_topics(settings, group):
        yield "MISSING", ", ".join(missing)


def _missing_topics(settings: Settings, group: GroupView) -> list[str] | None:
    """Return the topics that a streams group waits for; None if it is ready, or if no broker answers."""
    if group.state is not Phase.NOT_READY or group.record is None:
        return None
    wanted = group.record.subscribed_topics or ()
    try:
        there = EndOffsets(settings).partitions(wanted)
    except BrokerUnreachable:
        return None
    return [topic for topic in wanted if topic not in there]


def _description_of(settings: Settings, group: GroupView) -> DescribeGroupAnswer | None:
    """Request from the coordinator what no topic contains; None if it is unavailable, and if the topics contain all.

    It has the members that a rebalance waits for, which the record of a group of the consumer protocol has, too. It
    also has the name of the policy entry in force.
    """
    if group.state not in (Phase.PREPARING, Phase.COMPLETING) and not group.has_holds:
        return None
    from streaming.cli.lib.requests import Administration  # only this function needs this slow import

    try:
        with Administration(settings, AWAITED_WAIT_S) as administration:
            told = administration.describe(group.group_id)
    except UserError:
        return None
    return told if isinstance(told, DescribeGroupAnswer) else None


def _facts_of_an_answer(answer: DescribeGroupAnswer | None) -> Iterator[Fact]:
    if answer is None:
        return
    if answer.deadline_ms is not None and answer.state in REBALANCING:
        yield "WAITS-FOR", ", ".join(answer.awaited) or None
        yield "UNTIL", moment(answer.deadline_ms)
    if (policy := known(answer.policy)) is not None:
        yield "POLICY", f"{policy.name}{'*' if policy.pattern is Pattern.PREFIXED else ''}"


def _facts(group: GroupView, ends: Ends, now: int) -> Iterator[Fact]:
    detail = answers.detail(group, ends, now)
    summary = detail.summary
    yield "GROUP", summary.group_id
    yield "TYPE", summary.type
    if summary.kept_by is not None:
        yield "KEPT-BY", summary.kept_by
    yield "STATE", summary.state
    yield "SINCE", moment(summary.since_ms)
    if detail.hold is not None:
        yield from _facts_of_a_hold(detail.hold, now)
    yield from _epochs(detail, now) if summary.type.has_epochs else _generation(detail)
    yield "MEMBERS", summary.members
    yield "SUBSCRIBED", ", ".join(detail.subscribed_topics) if detail.subscribed_topics else None
    yield "PARTITIONS", summary.partitions
    yield "TOTAL-LAG", summary.total_lag
    if summary.total_gone_unread:
        yield "GONE-UNREAD", f"below the log's start: {counted(summary.total_gone_unread, 'record')} gone unread"
    if summary.partitions_beyond_end:
        yield "BEYOND-END", f"{counted(summary.partitions_beyond_end, 'partition')} committed beyond the log's end"
    yield "REBALANCES-1H", summary.rebalances_1h
    if detail.why:
        yield "LAST-REBALANCE", f"{moment(detail.why.at_ms)}, {detail.why.cause.replace('_', ' ')}"
    for who in detail.flapping:
        if who.rebalances >= UNSTABLE_CLIENTS_SHOWN:
            yield (
                "FLAPPING",
                f"{who.client_id} at {who.client_host} caused {who.rebalances} rebalances of the last hour",
            )


def _facts_of_a_hold(hold: HoldRow, now: int) -> Iterator[Fact]:
    if (held := hold_in_words(hold, now)) is not None:
        yield "HELD", held
    if hold.frozen_until_ms is not None:
        yield "FROZEN-UNTIL", moment(hold.frozen_until_ms)
    for each in hold.quarantined:
        yield "QUARANTINED", quarantine_in_words(each)


def _generation(detail: GroupDetail) -> Iterator[Fact]:
    summary = detail.summary
    yield "GENERATION", summary.generation_id
    yield "PROTOCOL", " ".join(filter(None, (summary.protocol_type, summary.protocol_name))) or None
    yield "LEADER", detail.leader


def _epochs(detail: GroupDetail, now: int) -> Iterator[Fact]:
    summary = detail.summary
    yield "GROUP-EPOCH", summary.generation_id
    yield "ASSIGNMENT-EPOCH", summary.assignment_epoch
    if summary.type is GroupType.CONSUMER:
        yield "ASSIGNOR", summary.protocol_name or None
    for wait in detail.waits:
        yield "WAITS-FOR", in_short(wait, now)
    if detail.initializing:
        yield "WAITS-FOR", f"the share state of {by_topic(detail.initializing)}"
    if detail.topology is not None:
        yield from _facts_of_a_topology(detail.topology)


def _facts_of_a_topology(topology: Topology) -> Iterator[Fact]:
    yield "TOPOLOGY-EPOCH", topology.epoch
    for name, each in sorted(topology.subtopologies.items()):
        parts = (("reads", each.sources), ("writes", each.repartition_sinks), ("keeps its state in", each.changelogs))
        yield "SUBTOPOLOGY", f"{name} " + "; ".join(f"{verb} {', '.join(topics)}" for verb, topics in parts if topics)
    if topology.configs:
        yield "CONFIGS", ", ".join(f"{name}={value}" for name, value in sorted(topology.configs.items()))


UNSTABLE_CLIENTS_SHOWN = 3


def members(settings: Settings, wanted: Wanted, output: Output) -> None:
    """Show the members of groups, and the assignment of each."""
    groups = wanted.of(folded(settings, wanted.ids, events=False))
    if output.form is OutputFormat.json:
        output.answer(_by_group({group.group_id: answers.members(group) for group in groups}, wanted))
    else:
        output.rows(MEMBERS, member_lines(groups))
    for group in groups:
        say_state(group)


def offsets(settings: Settings, wanted: Wanted, output: Output) -> None:
    """Show the committed offset and the lag of each partition."""
    groups = wanted.of(folded(settings, wanted.ids, events=False))
    ends = ends_of(settings, groups)
    if output.form is OutputFormat.json:
        output.answer(_by_group({group.group_id: answers.offsets(group, ends) for group in groups}, wanted))
    else:
        show_offsets(groups, ends, output)
    warn_beyond_end(groups, ends)


def show_offsets(groups: Iterable[GroupView], ends: Ends, output: Output) -> None:
    """Write a line for each partition."""
    output.rows(OFFSETS, [PartitionLine(g.group_id, row) for g in groups for row in answers.offsets(g, ends)])


def _by_group(of: dict[str, Any], wanted: Wanted) -> Any:
    """Return the rows of several groups by their groups' ids, because rows do not contain them; or one group's rows."""
    return of if wanted.is_regex or len(of) != 1 else next(iter(of.values()))
