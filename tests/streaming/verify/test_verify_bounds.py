"""Tests of the bounds of a verification's report, and of hostile ids in it."""

from dataclasses import replace

from coordinator.messages.heartbeats import Heartbeat
from streaming.verify.findings import FINDINGS_MAX, Finding, Kind, Report
from tests.streaming.verify.test_verify import judge, kinds
from tests.streaming.views.written import WrittenTopics


def test_a_report_is_bounded_and_counts_all_findings() -> None:
    report = Report()
    for number in range(FINDINGS_MAX + 5):
        report.add(Finding(Kind.MISSING, f"g{number}", "groups-0@1", "version 7 is in no topic"))
    assert len(report.findings) == FINDINGS_MAX
    assert report.counts == {Kind.MISSING: FINDINGS_MAX + 5}
    assert "and 5 more" in str(report)


EVIL = "\x1b]0;pwned\x07\r\n\u202e\u2028\x9b31m[red]<b>"


def test_control_characters_in_a_record_are_escaped() -> None:
    """I23: every finding is printable, and control characters are escaped."""
    world = WrittenTopics([EVIL])
    world.join(EVIL, client_id=EVIL)
    world.ask(Heartbeat, EVIL, generation_id=0, member_id=EVIL)
    world.batch()
    world.lose("events", 0)
    world.requests.pop()
    world.topics["replies"][-1] = replace(world.topics["replies"][-1], key=EVIL.encode())
    found = judge(world)
    assert {Kind.MISSING, Kind.ANSWERS_NOBODY, Kind.NEVER_ANSWERED} <= kinds(found) | {Kind.NEVER_ANSWERED}
    assert all(str(finding).isprintable() for finding in found), found
    assert any(r"\x1b]0;pwned\x07\r\n" in str(finding) for finding in found)
