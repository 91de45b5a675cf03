"""Tests of the verification of groups under policies: a seat that passes on is correct, and each error is found."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from streaming.verify.findings import Kind
from streaming.verify.tokens import Tokens
from tests.streaming.verify.test_verify import judge, kinds
from tests.streaming.views.deploy import S, completed, taken
from tests.streaming.views.seated import SUCCESSION, SeatedTopics, converse_seated, deployed

SEEDS = range(30)


def test_a_deploy_has_no_finding() -> None:
    """policies.md 2.4, P1 and P3: in one generation partitions get another owner, and each has a higher token."""
    world = deployed()
    assert judge(world) == []
    world.compact(len(world.topics["groups"]))
    assert judge(world) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_any_correct_life_has_no_finding(seed: int) -> None:
    world, chance = SeatedTopics(), random.Random(seed)
    converse_seated(world, chance, 60)
    assert judge(world) == []
    world.compact(chance.randrange(len(world.topics["groups"])))
    world.expire("events", chance.randrange(len(world.topics["events"])))
    assert judge(world) == []


@pytest.fixture
def world() -> SeatedTopics:
    """Return a group whose last two records are those of a vacancy and of its taker."""
    world = SeatedTopics()
    world.policies(SUCCESSION)
    world.start("c1", "c2", "c3")
    world.wait(5 * S)
    world.stop("c2")
    world.start("d2")
    assert judge(world) == []
    return world


def alter_last(world: SeatedTopics, topic: str, change: Any) -> None:
    record = world.topics[topic][-1]
    value = json.loads(record.value or b"")
    change(value)
    world.topics[topic][-1] = replace(record, value=json.dumps(value).encode())


def test_an_owner_that_is_a_member_yet_is_reported(world: SeatedTopics) -> None:
    """P1: a partition comes to another member only after the first one is gone."""

    def steal(value: dict[str, Any]) -> None:
        robbed, *_, taker = value["members"]
        taker["assignment"], robbed["assignment"] = robbed["assignment"], taker["assignment"]

    alter_last(world, "groups", steal)
    found = [finding for finding in judge(world) if finding.kind is not Kind.TOKEN_FELL]
    assert kinds(found) == {Kind.TWO_OWNERS}
    assert "which is a member yet" in found[0].text


def test_an_owner_that_lost_its_partition_before_is_reported(world: SeatedTopics) -> None:
    """P1: nobody had the partition for a while, and still its last owner has not left."""
    *_, vacant, last = world.topics["groups"]
    value = json.loads(last.value or b"")
    kept = value["members"][0]["assignment"]
    for record in (vacant, last):
        value = json.loads(record.value or b"")
        value["members"][0]["assignment"] = "AAAAAAAA/////w=="
        if record is last:
            value["members"][-1]["assignment"] = kept
        world.topics["groups"][record.offset] = replace(record, value=json.dumps(value).encode())
    assert kinds([finding for finding in judge(world) if finding.kind is not Kind.TOKEN_FELL]) == {Kind.TWO_OWNERS}


def test_a_taker_without_a_higher_token_is_reported(world: SeatedTopics) -> None:
    """P3: a store that keeps the highest token would let both owners write."""
    first = json.loads(world.topics["groups"][-1].value or b"")["members"][0]["fencing_token"]

    def lower(value: dict[str, Any]) -> None:
        value["members"][-1]["fencing_token"] = first

    alter_last(world, "groups", lower)
    assert kinds(judge(world)) == {Kind.TOKEN_FELL}


def test_tokens_of_seats_grow() -> None:
    """P3: only a member that takes several seats at once gets one token for all of them."""
    tokens = Tokens()
    assert not list(tokens.judge(completed(1, 5, "c1")))
    assert list(tokens.judge(taken(5, "d1", "took", "c1", 1, 0))) == ["token 5 was given after 5"]
    for fields in (("d1", "adopted", "c1", 1, 0), ("d1", "adopted", "c2", 1, 1)):
        assert not list(tokens.judge(taken(6, *fields)))
    assert list(tokens.judge(taken(6, "d2", "took", "c3", 1, 2))) == ["token 6 was given after 6"]
    assert list(tokens.judge(completed(9, 6, "c1"))) == ["token 6 was given after 6"]
