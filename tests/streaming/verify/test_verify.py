"""Tests of the verification of topics.

Correct topics have no finding, also if batches were cut or repeated, or records compacted or expired. Each kind of
error has its finding.
"""

import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest

from coordinator.messages.group_records import GroupRecord
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import DeleteGroup, LeaveGroup, Leaving, OffsetCommit, OffsetFetch, OffsetToCommit
from coordinator.messages.responses import JoinGroupAnswer, Reply
from streaming.verify.exchanges import Exchanges
from streaming.verify.findings import Finding, Kind
from streaming.verify.published import Published
from streaming.views.state.version_follower import EVENTS, GROUPS
from streaming.wire.records import decode_group_record
from tests.streaming.views.written import Written, WrittenTopics, converse

SEEDS = range(60)
GROUP_IDS = ["a", "b", "c"]


def judge(world: WrittenTopics, settling_ms: int = 0) -> list[Finding]:
    """Return the findings of `verify` on the records that are kept."""
    events, groups = world.topics["events"], world.topics["groups"]
    exchanges = Exchanges(None, settling_ms)
    found = list(exchanges.replies(world.topics["replies"], is_cut=world.begins["replies"] > 0))
    published = Published(None, world.begins["events"])
    both = heapq.merge(groups, events, key=attrgetter("timestamp"))
    for record in both:
        found += published.judge(EVENTS if record.topic == "events" else GROUPS, record)
    found += published.end(world.now_ms - settling_ms)
    found += exchanges.judge(world.requests, published, is_cut=world.requests[0].offset > 0)
    return found + list(exchanges.end())


def kinds(found: list[Finding]) -> set[str]:
    return {finding.kind for finding in found}


@pytest.fixture(params=SEEDS)
def chance(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(request.param)


@pytest.fixture
def world(chance: random.Random) -> WrittenTopics:
    world = WrittenTopics(GROUP_IDS)
    converse(world, chance, 40)
    return world


# -- correct topics ----------------------------------------------------------------------------------------------------


def test_correct_topics_have_no_finding(world: WrittenTopics) -> None:
    """I1, I2, I5, I6, I8, I13: batches are cut short and repeated, groups are deleted and created again."""
    assert judge(world) == []


def test_compaction_and_retention_cause_no_finding(world: WrittenTopics, chance: random.Random) -> None:
    """I8: superseded records, old tombstones, and the oldest events, requests and replies may be gone."""
    until = chance.randrange(len(world.topics["groups"]))
    compacted_ms = world.topics["groups"][until].timestamp
    tombstones_too = chance.random() < 0.5
    world.compact(until, tombstones_too=tombstones_too)
    world.expire("events", chance.randrange(len(world.topics["events"])))
    world.expire("replies", sum(tombstones_too or r.timestamp <= compacted_ms for r in world.topics["replies"]))
    world.requests = world.requests[chance.randrange(len(world.requests)) :]
    assert judge(world) == []
    world.expire("events", world.topics["events"][-1].offset + 1)
    assert judge(world) == []


# -- errors ------------------------------------------------------------------------------------------------------------


def written_once(world: WrittenTopics, topic: str) -> Iterator[int]:
    """Yield the indexes of records that are written only once, before other records of their group."""
    records = world.topics[topic]
    counts: dict[tuple[bytes, bytes | None], int] = {}
    for record in records:
        counts[record.key, record.value] = counts.get((record.key, record.value), 0) + 1
    last = {group: max(i for i, r in enumerate(records) if _group(r) == group) for group in GROUP_IDS}
    for i, record in enumerate(records):
        is_an_end = b"group_deleted" in (record.value or b"") or record.value is None
        if counts[record.key, record.value] == 1 and not is_an_end and i < last.get(_group(record), 0):
            yield i


def _group(record: Written) -> str:
    key = record.key.decode()
    return str(json.loads(key)[1]) if key.startswith("[") else key


@pytest.mark.parametrize("topic", ["events", "groups"])
def test_a_lost_record_is_reported_as_missing(world: WrittenTopics, chance: random.Random, topic: str) -> None:
    """I8: every reader can detect a lost record."""
    world.lose(topic, chance.choice(list(written_once(world, topic))))
    found = [f for f in judge(world) if f.kind is not Kind.COMMIT_LOST]
    assert kinds(found) == {Kind.MISSING}, found
    assert len(found) == 1


def test_a_repeat_that_differs_is_reported(world: WrittenTopics, chance: random.Random) -> None:
    """I8, F4: a repeat has equal bytes."""
    events = world.topics["events"]
    late = [i for i in written_once(world, "events") if json.loads(events[i].value or b"")["version"] > 2]
    index = chance.choice(late)
    value = json.loads(events[index].value or b"")
    again = replace(events[index], value=json.dumps({**value, "at_ms": value["at_ms"] + 1}).encode())
    world.topics["events"] = [
        replace(r, offset=offset) for offset, r in enumerate([*events[: index + 1], again, *events[index + 1 :]])
    ]
    (found,) = judge(world)
    assert found.kind is Kind.ALTERED
    assert f"version {value['version']} came again" in found.text


class Small(WrittenTopics):
    """Two members of group `a`, in generation 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.join("a")
        (ana,) = self.joined()
        self.join("a")
        self.join("a", ana)
        self.ids = sorted(self.joined(), key=lambda member_id: member_id != ana)

    def joined(self) -> list[str]:
        answers = [output.answer for output in self.batch() if isinstance(output, Reply)]
        return [answer.member_id for answer in answers if isinstance(answer, JoinGroupAnswer)]

    def plan(self, plan: dict[str, list[int]]) -> None:
        self.sync("a", 2, self.ids[1], {})
        self.sync("a", 2, self.ids[0], plan)
        self.batch()

    def commit(self, offset: int) -> None:
        self.now_ms += 10
        commit = OffsetToCommit("t", 0, offset)
        self.ask(OffsetCommit, "a", member_id=self.ids[0], generation_id=2, offsets=(commit,))
        self.batch()

    def records(self) -> list[tuple[int, GroupRecord]]:
        decoded = [(i, decode_group_record(r.key, r.value)[1]) for i, r in enumerate(self.topics["groups"])]
        return [(i, record) for i, record in decoded if isinstance(record, GroupRecord)]

    def alter(self, topic: str, index: int, **fields: Any) -> None:
        record = self.topics[topic][index]
        value = json.dumps({**json.loads(record.value or b""), **fields}).encode()
        self.topics[topic][index] = replace(record, value=value)


@pytest.fixture
def small() -> Small:
    small = Small(["a"])
    small.plan({small.ids[0]: [0, 1, 2], small.ids[1]: [3, 4, 5]})
    small.commit(5)
    small.ask(OffsetFetch, "a")
    small.ask(Heartbeat, "a", generation_id=2, member_id=small.ids[0])
    small.batch()
    assert judge(small) == []
    return small


def test_a_partition_with_two_owners_is_reported(small: Small) -> None:
    """I1: a later record exchanges the assignments of two members, so that all six partitions have two owners."""
    index, record = small.records()[-1]
    assert len(record.members) == 2
    later = replace(small.topics["groups"][index], offset=len(small.topics["groups"]))
    small.topics["groups"].append(later)
    members = json.loads(later.value or b"")["members"]
    members[0]["assignment"], members[1]["assignment"] = members[1]["assignment"], members[0]["assignment"]
    small.alter("groups", -1, members=members, version=len(small.topics["groups"]) + len(small.topics["events"]))
    found = [f for f in judge(small) if f.kind is not Kind.TOKEN_FELL]
    assert kinds(found) == {Kind.TWO_OWNERS}
    assert len(found) == 6


def test_a_partition_that_the_leader_assigned_twice_is_reported() -> None:
    """I1: the coordinator passes the leader's assignments on unchanged."""
    small = Small(["a"])
    small.plan({small.ids[0]: [0, 1], small.ids[1]: [1, 2]})
    (found,) = judge(small)
    assert (found.kind, found.group_id) == (Kind.PLANNED_TWICE, "a")
    assert "t-1" in found.text


def test_a_decreasing_generation_is_reported(small: Small) -> None:
    """I2: a group's generation never decreases."""
    index = small.records()[-1][0]
    small.alter("groups", index, generation_id=0)
    assert Kind.GENERATION_FELL in kinds(judge(small))


def last_completed(small: Small) -> int:
    events = [json.loads(r.value or b"")["event"] for r in small.topics["events"]]
    return len(events) - 1 - events[::-1].index("rebalance_completed")


@pytest.mark.parametrize("token", [1, 1_000_000_000])
def test_a_fencing_token_that_does_not_increase_is_reported(small: Small, token: int) -> None:
    """I2 for stores: the first token was 1,000,000,000, the world's time in microseconds."""
    small.join("a", small.ids[0])
    small.join("a", small.ids[1])
    small.batch()
    small.now_ms += 10
    small.sync("a", 3, small.ids[0], {})
    small.batch()
    assert judge(small) == []
    small.alter("events", last_completed(small), fencing_token=token)
    (found,) = judge(small)
    assert found.kind is Kind.TOKEN_FELL
    assert f"token {token} was given after 1000000000" in found.text


@pytest.mark.parametrize("by", [0, 1])
def test_a_new_owner_without_a_higher_token_is_reported(small: Small, by: int) -> None:
    """I2 for stores: the record has the owners; the same owner may have the same token again."""
    small.join("a", small.ids[0])
    small.join("a", small.ids[1])
    small.batch()
    small.sync("a", 3, small.ids[0], {small.ids[1]: [0], small.ids[0]: [1]})
    small.batch()
    assert judge(small) == []
    index = small.records()[-1][0]
    members = json.loads(small.topics["groups"][index].value or b"")["members"]
    for member in members:
        member["fencing_token"] = 1_000_000_000 - by
    small.alter("groups", index, members=members)
    found = judge(small)
    assert kinds(found) == {Kind.TOKEN_FELL}
    assert len(found) == 1 + by, "partition 1 keeps its owner, and an equal token is not lower"
    assert any("t-0 is" in f.text for f in found)


def test_records_of_an_older_coordinator_without_tokens_are_accepted(small: Small) -> None:
    small.join("a", small.ids[0])
    small.join("a", small.ids[1])
    small.batch()
    small.sync("a", 3, small.ids[0], {})
    small.batch()
    for topic in ("events", "groups"):
        for index, record in enumerate(small.topics[topic]):
            value = json.loads(record.value) if record.value is not None else {}
            value.pop("fencing_token", None)
            for member in value["members"] if isinstance(value.get("members"), list) else []:
                member.pop("fencing_token", None)
            if value:
                small.topics[topic][index] = replace(record, value=json.dumps(value).encode())
    assert judge(small) == []


def test_a_token_that_decreases_after_a_groups_end_is_reported() -> None:
    """I2 for stores: versions begin at 1 again, generations may do so, tokens never do."""
    world = Small(["a"])
    world.plan({world.ids[0]: [0], world.ids[1]: []})
    for member_id in world.ids:
        world.ask(LeaveGroup, "a", members=(Leaving(member_id),))
    world.ask(DeleteGroup, "a")
    world.batch()
    world.now_ms += 1_000
    world.join("a")
    (member_id,) = world.joined()
    world.sync("a", 4, member_id, {member_id: [0]})
    world.batch()
    assert judge(world) == []
    world.alter("events", last_completed(world), fencing_token=1)
    (found,) = judge(world)
    assert found.kind is Kind.TOKEN_FELL


def test_a_wiped_state_is_reported(small: Small) -> None:
    """I2, I8, F8: a coordinator that has lost its groups begins again at 1."""
    again = WrittenTopics(["a"], now_ms=small.now_ms + 1_000)
    again.asked, again.topics, again.requests = small.asked, small.topics, small.requests
    again.join("a")
    again.batch()
    again.now_ms += 10
    found = judge(again)
    assert {Kind.ALTERED, Kind.GENERATION_FELL} <= kinds(found)
    assert any("no record ended the group" in f.text for f in found)


def test_a_reply_without_a_request_is_reported(small: Small) -> None:
    """I5: the reply has no request."""
    small.requests.pop()
    (found,) = judge(small)
    assert found.kind is Kind.ANSWERS_NOBODY


def test_a_reply_of_another_kind_is_reported(small: Small) -> None:
    """I5: the reply has the kind of another request."""
    small.alter("replies", -1, kind="leave_group")
    (found,) = judge(small)
    assert found.kind is Kind.ANSWERS_NOBODY
    assert "leave_group response to a heartbeat request" in found.text


def test_two_replies_to_a_request_are_reported_only_if_they_differ(small: Small) -> None:
    """I6, I8: an equal reply is a repeat, a different one is an error."""
    last = small.topics["replies"][-1]
    small.topics["replies"].append(replace(last, offset=last.offset + 1))
    assert judge(small) == []
    small.alter("replies", -1, error="UNKNOWN_MEMBER_ID", code=25)
    (found,) = judge(small)
    assert found.kind is Kind.ANSWERED_TWICE


def test_a_request_that_may_be_repeated_may_have_two_replies(small: Small) -> None:
    request, reply = small.requests[-1], small.topics["replies"][-1]
    small.requests.append(replace(request, offset=request.offset + 1))
    small.topics["replies"].append(replace(reply, offset=reply.offset + 1))
    small.alter("replies", -1, error="UNKNOWN_MEMBER_ID", code=25)
    assert judge(small) == []
    small.requests = small.requests[-1:]
    assert judge(small) == []


@pytest.mark.parametrize("index", [0, 3, 4, 5, 6], ids=["join", "sync", "leader's sync", "commit", "fetch"])
def test_a_request_without_a_reply_is_reported(small: Small, index: int) -> None:
    """I6, also for a parked request: the group is Stable, so no request waits."""
    asked_id = json.loads(small.requests[index].value or b"")["request_id"]
    small.topics["replies"] = [
        r for r in small.topics["replies"] if json.loads(r.value or b"")["request_id"] != asked_id
    ]
    small.topics["replies"] = [replace(r, offset=i) for i, r in enumerate(small.topics["replies"])]
    (found,) = judge(small)
    assert found.kind is Kind.NEVER_ANSWERED
    assert found.place == f"requests-0@{index}"


def test_a_request_that_is_not_handled_yet_is_not_reported(small: Small) -> None:
    """I6: the coordinator may be unavailable."""
    small.ask(Heartbeat, "a", generation_id=2, member_id=small.ids[0])
    assert judge(small) == []


def test_an_acknowledged_commit_that_is_not_published_is_reported(small: Small) -> None:
    """I13: the commit is missing although its version is published, with a record of another partition."""
    small.commit(9)
    offsets = [i for i, r in enumerate(small.topics["groups"]) if b'"offset":9' in (r.value or b"")]
    small.alter("groups", offsets[0], partition=3)
    (found,) = judge(small)
    assert found.kind is Kind.COMMIT_LOST
    assert "9 was acknowledged for t-0" in found.text


def test_a_fetch_without_an_acknowledged_commit_is_reported(small: Small) -> None:
    """I13: this was a bug of SeaweedFS, where an offset fetch right after a commit returned -1."""
    index = next(i for i, r in enumerate(small.topics["replies"]) if b'"kind":"offset_fetch"' in (r.value or b""))
    partitions = json.loads(small.topics["replies"][index].value or b"")["partitions"]
    small.alter("replies", index, partitions=[{**partitions[0], "offset": 4}])
    (found,) = judge(small)
    assert found.kind is Kind.COMMIT_LOST
    assert "5 is committed for t-0, and 4 was fetched" in found.text


def test_a_lower_commit_is_not_reported(small: Small) -> None:
    """I13: an offset may be reset to a lower one."""
    small.commit(2)
    small.ask(OffsetFetch, "a")
    small.batch()
    assert judge(small) == []


@pytest.mark.parametrize("topic", ["groups", "events", "replies"])
@pytest.mark.parametrize("value", [b"{", b'{"x":' + b"[" * 100_000, b"\xff", b""])
def test_an_unreadable_record_is_reported(small: Small, topic: str, value: bytes) -> None:
    records = small.topics[topic]
    records.append(replace(records[-1], offset=records[-1].offset + 1, value=value))
    (found,) = judge(small)
    assert (found.kind, found.place) == (Kind.UNREADABLE, f"{topic}-0@{records[-1].offset}")


def test_records_within_the_settling_time_are_not_judged(small: Small) -> None:
    """A batch writes to all topics, but not at the same time."""
    small.commit(9)
    small.topics["groups"].pop()
    small.ask(Heartbeat, "a", generation_id=2, member_id=small.ids[0])
    small.batch()
    assert judge(small, settling_ms=1_000) == []
    assert judge(small) != []
