"""The history of groups, as `coordinator groups timeline`, `why` and `owner` print it."""

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.messages.events import RebalanceCompleted
from streaming.cli.groups.show import folded, remembered
from streaming.cli.lib.output import MISSING, Column, Output, OutputFormat, to_cell
from streaming.cli.lib.times import moment
from streaming.config.peers import PEERS_MAX
from streaming.config.settings import Settings
from streaming.errors import Exit, NoCoordinator, NotFound, UserError
from streaming.logs import tell
from streaming.moments import unix_ms
from streaming.views import GroupView, Views
from streaming.views.api import answers
from streaming.views.api.lives import Life, joined, named_by
from streaming.views.api.rows import Owner, RebalanceRow, Timeline
from streaming.views.history.owners import Span, spans_of_owners
from streaming.views.history.rebalances import INFERRED
from streaming.views.sentences.policy_advice import count_in_words, seat_count
from streaming.views.sentences.rebalances import began_after, phases, vacancy_in_words
from streaming.views.sentences.why import why as explained
from streaming.views.state.causes import cause_of, is_further_round
from streaming.views.state.fields import known
from streaming.views.text import brief, counted, duration, escape, in_quotes, naming, plain


class BadPlace(UserError):
    """The text does not name a partition."""

    exit_code = Exit.USAGE


class TimelineLine(NamedTuple):
    """An event of a group as text, escaped for a terminal."""

    at_ms: int
    generation_id: int | None
    event: str
    text: str


HISTORY = (
    Column("TIME", lambda line: line.at_ms, is_time=True),
    Column("GENERATION", lambda line: line.generation_id, is_number=True),
    Column("EVENT", lambda line: line.event),
    Column("WHAT", lambda line: line.text, is_chosen=True),
)

_SHOWN_BY_THE_REBALANCE = {"rebalance_started", "rebalance_completed"}


def timeline_lines(timeline: Timeline) -> list[TimelineLine]:
    """Return one line for each rebalance, at its start, and one for each other event."""
    with naming(timeline.client_ids):
        return _timeline_lines(timeline)


def _timeline_lines(timeline: Timeline) -> list[TimelineLine]:
    completed = {
        (row.at_ms, row.record.generation_id): row.record
        for row in timeline.events
        if isinstance(row.record, RebalanceCompleted)
    }
    begun = {}
    for row in timeline.rebalances:
        text = _rebalance(row, completed.get((row.ended_ms or 0, row.generation_id)))
        line = TimelineLine(row.started_ms, row.generation_id, "rebalance", text)
        begun[id(row.started[0] if row.started else row)] = line
    lines = []
    for event in timeline.events:
        if (rebalance := begun.pop(id(event.record), None)) is not None:
            lines.append(rebalance)
        elif event.event not in _SHOWN_BY_THE_REBALANCE:
            lines.append(TimelineLine(event.at_ms, event.record.generation_id, event.event, event.text))
    earlier = begun.values()  # the events do not contain their start
    return sorted([*earlier, *lines], key=lambda line: line.at_ms)


def _rebalance(row: RebalanceRow, completed: RebalanceCompleted | None) -> str:
    is_inferred = row.how_known == INFERRED
    cause = plain(row.cause)
    first = row.started[0] if row.started else None
    if first is not None and first.member_id:
        cause += f", {brief(first.member_id)} at {escape(first.client_host) or '?'}"
    if first is not None and first.reason:
        cause += in_quotes(first.reason)
    more = [plain(cause_of(each)) for each in row.started[1:] if not is_further_round(each)]
    rounds = [plain(cause_of(each)) for each in row.started[1:] if is_further_round(each)]
    parts = [cause]
    if more:
        parts.append(f"{'also' if is_inferred else 'then'} {', '.join(more)}")
    if rounds:
        parts.append(f"then {', '.join(rounds)}")
    if row.held_ms is not None:
        parts.append(f"held for {duration(row.held_ms)}")
    parts += _inferred(row, completed) if is_inferred else [_took(row, completed)]
    if row.members is not None:
        led = f", led by {brief(completed.leader)}" if completed is not None and completed.leader else ""
        parts.append(f"{row.members} member{'s' * (row.members != 1)}{led}")
    parts += [
        f"{verb} {', '.join(map(brief, ids))}" for verb, ids in (("joined", row.joined), ("gone", row.gone)) if ids
    ]
    if row.moved:
        parts.append(f"{row.moved} partition{'s' * (row.moved != 1)} changed hands")
    return "; ".join(parts)


def _took(row: RebalanceRow, completed: RebalanceCompleted | None) -> str:
    took = "still running" if row.duration_ms is None else f"took {duration(row.duration_ms)}"
    if len(row.generations) > 1:
        return f"{took} in {len(row.generations)} rounds"
    return f"{took} ({phases(completed)})" if completed is not None else took


def _inferred(row: RebalanceRow, completed: RebalanceCompleted | None) -> Iterator[str]:
    """Yield what is known of the times of a rebalance whose start is not recorded."""
    yield began_after(row.not_before_ms)
    if row.unplanned_rounds:
        yield f"{counted(row.unplanned_rounds, 'round')} before it without a plan"
    if len(row.generations) > 1:
        yield f"{len(row.generations)} rounds"
    elif completed is not None and completed.syncs_ms is not None:
        yield f"plan {duration(completed.syncs_ms)}"


def whole(settings: Settings, group_id: str) -> Life:
    """Read the history of a group at a coordinator, and at each other one that its moves name.

    Raises:
        NotFound: The group does not exist and has no history at the configured coordinator.
    """
    views = folded(settings, [group_id])
    found = {settings.topic_prefix: Life(views, remembered(views, group_id))}
    named = named_by(found[settings.topic_prefix].group)
    while named and len(found) <= PEERS_MAX:
        if (prefix := named.pop(0)) in found:
            continue
        try:
            views = folded(settings.model_copy(update={"topic_prefix": prefix}), [group_id])
        except NoCoordinator as error:
            tell(f"The history of {escape(group_id)} at {escape(prefix)} is left out. {error}")
            continue
        if (group := views.groups.get(group_id)) is not None:
            found[prefix] = Life(views, group)
            named += named_by(group)
    return joined(list(found.values()))


def timeline(
    settings: Settings, group_id: str, since_ms: int | None, until_ms: int | None, limit: int | None, output: Output
) -> None:
    """Show a group's history, the oldest event first. With a limit, show only the last events."""
    show_timeline(answers.timeline(*whole(settings, group_id), since_ms, until_ms), limit, output)


def show_timeline(timeline: Timeline, limit: int | None, output: Output) -> None:
    """Write a history."""
    if output.form is OutputFormat.json:
        output.answer(timeline)
        return
    lines = timeline_lines(timeline)
    output.rows(HISTORY, lines if limit is None else lines[-limit:])
    if timeline.known_from_ms:
        tell(
            f"The history of {escape(timeline.group_id)} begins at {moment(timeline.known_from_ms)}: "
            + ("Kafka's log has no earlier records." if timeline.kept_by else "earlier events have expired.")
        )


def why(settings: Settings, group_id: str, at_ms: int | None, output: Output) -> None:
    """Show why a group last rebalanced, or last before a moment: the cause, the member, and advice."""
    show_why(*whole(settings, group_id), at_ms, output, unix_ms())


def show_why(views: Views, group: GroupView, at_ms: int | None, output: Output, now_ms: int | None = None) -> None:
    """Write the sentences of the explanation, or one sentence if the group has not rebalanced."""
    answer = explained(group, at_ms, now_ms)
    if output.form is OutputFormat.json:
        output.answer(answer)
    elif answer is None:
        by = f" by {moment(at_ms)}" if at_ms is not None else ""
        known_from_ms = views.known_from_ms(group)
        since = f" since {moment(known_from_ms)}, when its history begins" if known_from_ms else ""
        output.line(f"{escape(group.group_id)} has not rebalanced{by}{since}.")
        if (seats := seat_count(group, at_ms or now_ms or 0)) is not None:
            output.line(count_in_words(seats))
    else:
        for sentence in (answer.what, answer.who, *answer.details, *answer.policies, answer.advice):
            output.line(sentence)


def read_place(text: str) -> tuple[str, int]:
    """Parse TOPIC-PARTITION.

    Raises:
        BadPlace: The text has another form.
    """
    topic, _, number = text.rpartition("-")
    if not topic or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise BadPlace(f"{escape(text)} is not TOPIC-PARTITION.")
    return topic, int(number)


def owner(settings: Settings, group_id: str, place: str, at_ms: int | None, output: Output) -> None:
    """Show the owner of a partition, or of a task of a streams group, at a moment; the present owner by default."""
    is_task = "_" in place and "-" not in place
    partition_key = None if is_task else read_place(place)
    life, now = whole(settings, group_id), unix_ms()
    topic, partition = partition_key or _partition_of_task(life.group, place)
    show_owner(*life, topic, partition, now if at_ms is None else at_ms, now, output)


def _partition_of_task(group: GroupView, text: str) -> tuple[str, int]:
    """Return a partition that a task such as 0_3 reads.

    Raises:
        NotFound: The group has no such subtopology, or is no streams group.
    """
    topology = known(group.record.topology) if group.record else None
    subtopology_id, _, number = text.rpartition("_")
    found = topology.subtopologies.get(subtopology_id) if topology is not None else None
    if found is None or not found.sources or not (number.isascii() and number.isdigit() and len(number) < 10):
        raise NotFound(f"{escape(group.group_id)} has no task {escape(text)}.")
    return found.sources[0], int(number)


def show_owner(
    views: Views, group: GroupView, topic: str, partition: int, at_ms: int, now: int, output: Output
) -> None:
    """Write one line: the owner and the times of its ownership, or the owners before and after.

    Raises:
        NotFound: The history contains no owner of the partition.
    """
    answer = answers.owner(views, group, topic, partition, at_ms, now)
    name = f"{escape(topic)}-{partition}"
    if answer.members:
        _show_members(answer, name, group, output)
        return
    if (topic, partition) not in spans_of_owners(group):
        raise NotFound(f"The history of {escape(group.group_id)} contains no owner of {name}.")
    if output.form is OutputFormat.json:
        output.answer(answer)
        return
    if answer.owner:
        text = _span(answer.owner)
        if answer.fencing_token is not None:
            text += f", fencing token {answer.fencing_token}"
    else:
        text = "nobody" if answer.seat is None else vacancy_in_words(answer.seat)
        if at_ms > now:
            text = "not known: this time is in the future"
        elif not answer.is_known:
            text = f"not known: the history begins at {moment(answer.known_from_ms)}"
        sides = [f"{side} {_span(s)}" for side, s in (("before:", answer.before), ("after:", answer.after)) if s]
        text = "; ".join([text, *sides])
    output.line(f"{name} at {moment(at_ms)}: {text}")


def _show_members(answer: Owner, name: str, group: GroupView, output: Output) -> None:
    """Write who has a partition of a share group now. Several members may have it, and its history is not kept."""
    if output.form is OutputFormat.json:
        output.answer(answer)
        return
    with naming(group.client_ids):
        output.line(f"{name} now: {', '.join(map(brief, answer.members))}; several members may have it")


def _span(span: Span) -> str:
    begin = moment(span.from_ms) or "before the history begins"
    if span.seat_of is not None:
        begin += f" (in place of {brief(span.seat_of)})"
    end = f"{moment(span.to_ms)} ({span.because}{_last_commit(span)})" if span.to_ms is not None else "now"
    client, host = to_cell(span.client_id), to_cell(span.client_host)
    return f"{escape(span.member_id) or MISSING}, client {client} at {host}, from {begin} to {end}"


def _last_commit(span: Span) -> str:
    """Return when an owner committed last of which only that it is gone is known; "" for other owners."""
    return f"; its last commit was at {moment(span.last_commit_ms)}" if span.last_commit_ms is not None else ""
