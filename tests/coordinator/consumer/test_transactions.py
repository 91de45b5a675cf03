"""Offsets inside transactions, in groups of the consumer protocol."""

from typing import Any

import pytest

from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.requests import (
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    SettleTransactions,
    TxnOffsetCommit,
)
from tests.coordinator.consumer.conversation import Conversation
from tests.coordinator.reports import report
from tests.coordinator.wire import subscription


def a_rebalanced_group() -> Conversation:
    """Return a group with a member A of epoch 3, which has had two partitions since epoch 2."""
    return Conversation().plays("""
        T:4
        A 0 -> 2 {0 1 2 3}
        -- 1000
        B 0 -> 3 {}
        A 2 -> 2 {0 1}
        A 2 own 0 1 -> 3
    """)


@pytest.mark.parametrize(
    ("member_id", "epoch", "partition", "code"),
    [
        ("A", 3, 0, 0),
        ("A", 3, 9, 0),
        ("A", 4, 0, 113),
        ("A", 2, 0, 0),
        ("A", 2, 9, 113),
        ("X", 3, 0, 25),
        ("A", -1, 0, 113),
        ("", -1, 0, 0),
        ("", -1, 9, 0),
        ("", 0, 0, 25),
        ("", 3, 0, 25),
    ],
)
def test_a_consumer_member_is_fenced_by_its_epoch(member_id: str, epoch: int, partition: int, code: int):
    """next-generation.md 6.1, KIP-1319: another epoch is stale, but one below may be accepted."""
    said = a_rebalanced_group().sends(
        TxnOffsetCommit,
        member_id=member_id,
        generation_id=epoch,
        place=10,
        producer_id=7,
        producer_epoch=0,
        offsets=(OffsetToCommit("T", partition, 5),),
    )
    assert [p.code for p in said.partitions] == [code]


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 25), (4, 25)])
def test_an_empty_group_of_the_consumer_protocol_takes_commits_without_an_epoch(epoch: int, code: int):
    """next-generation.md 6.1, row 3: whatever ids they name."""
    talk = Conversation().plays("T:1\nA 0 -> 2 {0}\nA -1 -> -1")
    offsets = (OffsetToCommit("T", 0, 5),)
    who = {"member_id": "A", "generation_id": epoch}
    said = talk.sends(TxnOffsetCommit, **who, place=10, producer_id=7, producer_epoch=0, offsets=offsets)
    assert [p.code for p in said.partitions] == [code]


def test_pending_offsets_stay_when_a_group_changes_its_protocol():
    """An Empty group of the consumer protocol is replaced by a classic one, and the transaction ends after that."""
    talk = a_rebalanced_group()
    offsets = (OffsetToCommit("T", 0, 5),)
    who = {"member_id": "A", "generation_id": 3}
    talk.sends(TxnOffsetCommit, **who, place=10, producer_id=7, producer_epoch=0, offsets=offsets)
    for member in "AB":
        talk.sends(ConsumerGroupHeartbeat, member_id=member, member_epoch=-1)
    talk.steps_join(
        {
            "protocols": (Protocol("range", subscription(["T"])),),
            "protocol_type": "consumer",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
        }
    )
    assert talk.shard.group("g") is not None, "the group is a classic one"
    talk.sends(SettleTransactions, **report(talk.shard, 11, [10]))
    said = talk.sends(OffsetFetch, topics=None)
    assert [(f.topic, f.partition, f.offset) for f in said.partitions] == [("T", 0, 5)]


@pytest.mark.parametrize("kind", [OffsetCommit, TxnOffsetCommit])
def test_the_epoch_of_an_offset_with_long_metadata_does_not_count(kind: type[Any]):
    """next-generation.md 6.1, row 9: Kafka refuses such a partition alone, before it looks at the epoch of the rest."""
    offsets = OffsetToCommit("T", 0, 5), OffsetToCommit("T", 9, 5, metadata="x" * 4_097)
    transaction = {"place": 1, "producer_id": 7, "producer_epoch": 0} if kind is TxnOffsetCommit else {}
    said = a_rebalanced_group().sends(kind, member_id="A", generation_id=2, offsets=offsets, **transaction)
    assert [p.code for p in said.partitions] == [0, 12]
