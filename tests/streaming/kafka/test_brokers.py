"""The sentence about the brokers, from what they have answered; and a look at addresses without a broker."""

import pytest

from streaming.kafka.brokers import Brokers, Partition, check_brokers

ALL = frozenset({1, 2, 3})


def partition(leader: int = 1, in_sync: frozenset[int] = ALL, needed: int | None = 2, number: int = 0) -> Partition:
    return Partition("c.replies", number, leader, ALL, in_sync, needed)


def brokers(*answering: int, missing: tuple[str, ...] = (), **of_partition: object) -> Brokers:
    up = frozenset(answering)
    return Brokers("a:1,b:2,c:3", up, ALL - up, missing, (partition(**of_partition),), "refused")  # type: ignore[arg-type]


NOT_WRITTEN = "The brokers refuse to write c.replies: too few replicas are in sync (min.insync.replicas)"


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (brokers(), "No Kafka broker answers at a:1,b:2,c:3 (refused): start one there, or correct bootstrap_servers"),
        (brokers(1, 2, 3, missing=("c.events",)), "The brokers have no topic c.events: start the coordinator again"),
        (brokers(1, 2, 3, in_sync=frozenset({1})), f"{NOT_WRITTEN}: see the brokers' logs."),
        # the controllers may be gone, so that the brokers still list the replicas of those that are down
        (brokers(1), f"{NOT_WRITTEN}; brokers 2 and 3 do not answer; 1 does: start what is down."),
        # brokers need all replicas at most, whatever min.insync.replicas is
        (brokers(1, 2, needed=4), f"{NOT_WRITTEN}; broker 3 does not answer; 1 and 2 do: start what is down."),
        (brokers(1, 2, needed=3), f"{NOT_WRITTEN}; broker 3 does not answer; 1 and 2 do: start what is down."),
        (brokers(1, 2), "Broker 3 does not answer; 1 and 2 do: start what is down, or check the network to it."),
        (brokers(1, 2, leader=3), "Broker 3 does not answer; 1 and 2 do: start what is down"),
        (brokers(1, needed=None), "Brokers 2 and 3 do not answer; 1 does: start what is down"),
        (brokers(1, needed=1), "Brokers 2 and 3 do not answer; 1 does: start what is down"),
        (brokers(1, 2, 3, leader=-1), "c.replies-0 has no leader: see the brokers' logs."),
    ],
)
def test_each_fault_of_the_brokers_has_its_sentence(found: Brokers, sentence: str) -> None:
    assert found.sentence.startswith(sentence)


@pytest.mark.parametrize("needed", [None, 1, 2, 3, 4])
def test_brokers_without_a_fault_have_no_sentence(needed: int | None) -> None:
    assert brokers(1, 2, 3, needed=needed).sentence == ""


def test_a_sentence_names_few_of_many() -> None:
    topics = tuple(f"t{number}" for number in range(9))
    assert "no topic t0, t1, t2 and 6 more:" in brokers(1, 2, 3, missing=topics).sentence


def test_addresses_without_a_broker_do_not_answer() -> None:
    found = check_brokers({"bootstrap_servers": "127.0.0.1:9,127.0.0.1:10"}, ["c.replies"])
    assert found == Brokers("127.0.0.1:9,127.0.0.1:10", error="111 ECONNREFUSED")
