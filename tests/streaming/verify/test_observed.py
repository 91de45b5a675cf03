"""Tests of the verification of what `coordinator observe` publishes: versions, repeats and owners."""

import pytest
from msgspec.structs import replace

from coordinator.base.consumer_protocol import write_assignment
from coordinator.messages.group_records import GroupRecord
from streaming.verify.findings import Finding, Kind
from streaming.verify.published import Published
from streaming.views.state.version_follower import EVENTS, GROUPS
from streaming.wire.records import to_row
from tests.streaming.views.observing import TOPICS, Observed, T, member_id, published
from tests.streaming.views.written import Written

ANA, BO = member_id("ana"), member_id("bo")


def judge(observed: Observed, *, lost: int | None = None, repeated: int | None = None) -> list[Finding]:
    """Return the findings, if a record is lost, or is written again with other contents."""
    records = list(observed.written)
    if repeated is not None:
        records.append(replace(records[repeated], generation_id=99))
    if lost is not None:
        del records[lost]
    judge, found, offsets = Published(None, 0, is_observed=True), list[Finding](), {GROUPS: 0, EVENTS: 0}
    for record in records:
        row = to_row(published(record), TOPICS, 0)
        topic = EVENTS if row.topic == "events" else GROUPS
        found += judge.judge(topic, Written(row.topic, 0, offsets[topic], T, row.key, row.value, []))
        offsets[topic] += 1
    return found + list(judge.end(T + 1_000_000))


def classic(**owned: list[int]) -> Observed:
    """Return a classic group whose leader's assignments are these."""
    observed = Observed().begins().to(1).record(0, {member_id(name): numbers for name, numbers in owned.items()})
    record = observed.written[-1]
    assert isinstance(record, GroupRecord)
    members = tuple(replace(m, assignment=write_assignment(m.assigned or {})) for m in record.members)
    observed.written[-1] = replace(record, members=members)
    return observed


def test_what_observe_publishes_has_no_findings() -> None:
    """A generation may fall, since Kafka's log may be cut, and a group may be founded anew."""
    observed = classic(ana=[0, 1], bo=[2]).commits(5, 0, 17)
    observed.to(9).gap(10, 2, 8).started(10, "unknown").completed(11, ANA, BO).record(11, {ANA: [0]})
    assert judge(observed.to(3).gap(20, 9, 3).record(20, {BO: [0]})) == []


def test_a_lost_version_is_found() -> None:
    observed = classic(ana=[0]).commits(5, 0, 17).commits(6, 0, 18)
    assert [finding.kind for finding in judge(observed, lost=2)] == [Kind.MISSING]


def test_a_version_with_other_contents_is_found() -> None:
    observed = classic(ana=[0]).record(5, {ANA: [0]})
    assert Kind.ALTERED in {finding.kind for finding in judge(observed, repeated=1)}


def test_two_owners_of_one_generation_are_found() -> None:
    assert [finding.kind for finding in judge(classic(ana=[0, 1], bo=[1]))] == [Kind.PLANNED_TWICE]


@pytest.mark.parametrize(("other", "found"), [([1], []), ([0], [Kind.TWO_OWNERS])])
def test_two_owners_in_a_group_of_the_new_protocol_are_found(other: list[int], found: list[Kind]) -> None:
    observed = Observed(kind="consumer", session_ms=None).begins().to(3).record(0, {ANA: [0], BO: other})
    assert [finding.kind for finding in judge(observed)] == found
