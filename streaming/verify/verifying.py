"""All checks over all of a coordinator's topics, as they are now.

Where a topic ends is noted before the next one's end: replies before what was published with them, so that what is
answered is published by then, but for the last moments before it.
"""

import heapq
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from operator import itemgetter

from coordinator.hashing import shard_of
from streaming.config.settings import Settings
from streaming.kafka.reading import Progress, Topic
from streaming.moments import unix_ms
from streaming.verify.exchanges import REQUESTS_MAX, Exchanges
from streaming.verify.findings import Finding, Report
from streaming.verify.life import EVENTS, GROUPS
from streaming.verify.published import Published

SETTLING_MS = 30_000
"""What is younger than that may not be whole: a batch writes to all topics, but not at once."""


def verify(
    settings: Settings,
    groups: Collection[str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    settling_ms: int = SETTLING_MS,
) -> Report:
    """Judge what a coordinator has done by what its topics hold.

    Args:
        groups: Whom to look at; None for everybody.
        tell: Told in plain sentences how far it has come.
        settling_ms: 0 where nothing is going on any more.

    Raises:
        BrokerUnreachable: no broker answers.
        NoCoordinator: the topics are not there.
    """
    report, progress, exchanges = Report(), Progress(tell), Exchanges(groups, settling_ms)
    with ExitStack() as opened:
        requests, replies, events, published = (
            opened.enter_context(Topic(settings, name, progress, records_max))
            for name, records_max in (
                (settings.requests_topic, REQUESTS_MAX),
                (settings.replies_topic, REQUESTS_MAX),
                (settings.events_topic, None),
                (settings.groups_topic, None),
            )
        )
        now_ms = unix_ms()
        for partition, begin in replies.begins.items():
            _add(report, exchanges.replies(replies.read(partition), is_cut=begin > 0))
        shards = set(requests.begins) if groups is None else {shard_of(g, len(requests.begins)) for g in groups}
        for partition in sorted(shards):
            judge = Published(groups, events.begins[partition])
            both = heapq.merge(
                ((record.timestamp, GROUPS, record) for record in published.read(partition)),
                ((record.timestamp, EVENTS, record) for record in events.read(partition)),
                key=itemgetter(0),
            )
            for _, topic, record in both:
                _add(report, judge.take(topic, record))
            _add(report, judge.end(now_ms - settling_ms))
            report.groups += len(judge.groups)
            report.corrected += sum(group.standing.corrected for group in judge.groups.values())
            is_cut = requests.begins[partition] > 0
            _add(report, exchanges.asked(requests.read(partition), judge.groups, is_cut=is_cut))
    _add(report, exchanges.end())
    report.records, report.requests, report.commits = progress.read, exchanges.requests, exchanges.commits
    return report


def _add(report: Report, findings: Iterable[Finding]) -> None:
    for finding in findings:
        report.add(finding)
