"""All checks of all of a coordinator's topics, as they are now.

The end of each topic is read before the end of the next one: the end of the replies before the ends of the other output
topics. So the records of an answered request are published by then, except those of the last moments.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from operator import itemgetter

from coordinator.base.hashing import shard_of
from streaming.config.settings import Settings
from streaming.kafka.prefixes import is_observed
from streaming.kafka.reader import Progress, Record, TopicReader
from streaming.moments import unix_ms
from streaming.verify.custody import Custody
from streaming.verify.exchanges import REQUESTS_MAX, Exchanges
from streaming.verify.findings import Finding, Report
from streaming.verify.published import Published
from streaming.views.state.version_follower import EVENTS, GROUPS

SETTLING_MS = 30_000
"""Records that are younger may be incomplete: a batch writes to all topics, but not at the same time."""

Tell = Callable[[int, int], None]
"""A function that is called with the number of records read, and with the approximate total."""


def verify(
    settings: Settings,
    groups: Collection[str] | None = None,
    tell: Tell = lambda read, of: None,
    settling_ms: int = SETTLING_MS,
    peers: Collection[str] = (),
) -> Report:
    """Check a coordinator's promises with the records on its topics.

    Args:
        groups: The groups to check; None for all.
        tell: Called after each batch of records with the number of records read and the approximate total.
        settling_ms: 0 if no process writes to the topics any more.
        peers: The prefixes of other coordinators. They are checked too, and so are the moves of groups between all.

    Raises:
        BrokerUnreachable: No broker answers.
        NoCoordinator: The topics do not exist.
    """
    if not peers:
        return _verify(settings, groups, tell, settling_ms)
    prefixes = tuple(dict.fromkeys((settings.topic_prefix, *peers)))
    report, custody = Report(is_observed=True), Custody(prefixes)
    for prefix in prefixes:
        at, before = settings.model_copy(update={"topic_prefix": prefix}), report.records
        on_progress = partial(_progress_after, tell, before)
        report.add_all(_verify(at, groups, on_progress, settling_ms, custody), prefix)
    _add(report, custody.findings())
    report.moves, report.followed_one_in = custody.moves, custody.one_in
    return report


def _progress_after(tell: Tell, before: int, read: int, of: int) -> None:
    tell(before + read, before + of)


def _verify(
    settings: Settings,
    groups: Collection[str] | None,
    tell: Tell,
    settling_ms: int,
    custody: Custody | None = None,
) -> Report:
    """Check one coordinator.

    Args:
        custody: The stays of groups at all coordinators, if several are checked.
    """
    if is_observed(settings):
        return _verify_observed(settings, groups, tell, settling_ms)
    report, progress, exchanges = Report(), Progress(tell), Exchanges(groups, settling_ms)
    with ExitStack() as opened:
        requests, replies, events, published = (opened.enter_context(topic) for topic in _topics(settings, progress))
        now_ms = unix_ms()
        shards = set(requests.first_offsets)
        if groups is not None:
            shards = {shard_of(g, len(shards)) for g in groups}
        progress.expect(replies.length() + sum(each.length(shards) for each in (requests, events, published)))
        for partition, begin in replies.first_offsets.items():
            _add(report, exchanges.replies(replies.read(partition), is_cut=begin > 0))
        if custody is not None:
            custody.begin(settings.topic_prefix, len(requests.first_offsets), now_ms - settling_ms)
        for partition in sorted(shards):
            begin, collector = events.first_offsets[partition], None
            if custody is not None:
                groups_end = published.ends[settings.groups_topic, partition]
                collector = custody.partition(settings.topic_prefix, partition, groups_end, is_cut=begin > 0)
            judge = Published(groups, begin, collector=collector)
            _judge(report, judge, _in_order(published, events, partition), now_ms - settling_ms)
            is_cut = requests.first_offsets[partition] > 0
            _add(report, exchanges.judge(requests.read(partition), judge, is_cut=is_cut))
    _add(report, exchanges.end())
    report.records, report.requests, report.commits = progress.read, exchanges.requests, exchanges.commits
    return report


def _judge(report: Report, judge: Published, records: Iterable[tuple[int, Record]], until_ms: int) -> None:
    """Judge the published records of one partition."""
    for topic, record in records:
        _add(report, judge.judge(topic, record))
    _add(report, judge.end(until_ms))
    report.groups += len(judge.groups)
    report.corrected += sum(group.newest.corrected for group in judge.groups.values())


def _verify_observed(settings: Settings, groups: Collection[str] | None, tell: Tell, settling_ms: int) -> Report:
    """Check what `coordinator observe` has published: versions, repeats, and the owners of each generation.

    It takes no requests, so there are neither requests nor replies to compare the records with.
    """
    report, progress = Report(is_observed=True), Progress(tell)
    with (
        _Topic(settings, settings.events_topic, progress, None) as events,
        _Topic(settings, settings.groups_topic, progress, None) as published,
    ):
        until_ms = unix_ms() - settling_ms
        shards = set(events.first_offsets)
        if groups is not None:
            shards = {shard_of(g, len(shards)) for g in groups}
        progress.expect(events.length(shards) + published.length(shards))
        for partition in sorted(shards):
            judge = Published(groups, events.first_offsets[partition], is_observed=True)
            _judge(report, judge, _in_order(published, events, partition), until_ms)
    report.records = progress.read
    return report


class _Topic(TopicReader):
    """One topic, read partition by partition."""

    def __init__(self, settings: Settings, name: str, progress: Progress, newest: int | None) -> None:
        super().__init__(settings, [name], "coordinator-verify", newest=newest)
        self._progress = progress
        self.first_offsets = {partition: offset for (_, partition), offset in self.begins.items()}

    def length(self, partitions: Collection[int] | None = None) -> int:
        """Return the number of offsets to read of these partitions, or of all."""
        return sum(
            self.ends[place] - begin
            for place, begin in self.begins.items()
            if partitions is None or place[1] in partitions
        )

    def read(self, partition: int) -> Iterator[Record]:
        """Yield the records of one partition."""
        (place,) = (place for place in self.ends if place[1] == partition)
        return self.backlog([place], self._progress)


def _topics(settings: Settings, progress: Progress) -> Iterator[_Topic]:
    """Make readers of the requests, the replies, the events and the groups."""
    for name, records_max in (
        (settings.requests_topic, REQUESTS_MAX),
        (settings.replies_topic, REQUESTS_MAX),
        (settings.events_topic, None),
        (settings.groups_topic, None),
    ):
        yield _Topic(settings, name, progress, records_max)


def _in_order(published: _Topic, events: _Topic, partition: int) -> Iterator[tuple[int, Record]]:
    """Read the records of a shard from both topics, in the order of their times."""
    both = heapq.merge(
        ((record.timestamp, GROUPS, record) for record in published.read(partition)),
        ((record.timestamp, EVENTS, record) for record in events.read(partition)),
        key=itemgetter(0),
    )
    return ((topic, record) for _, topic, record in both)


def _add(report: Report, findings: Iterable[Finding]) -> None:
    for finding in findings:
        report.add(finding)
