"""What is said about groups of released clients: recorded conversations, replayed into views."""

import pytest

from streaming.cli.groups.history import timeline_lines
from streaming.views import GroupView
from streaming.views.api import answers
from streaming.views.history.instability import unstable_clients
from streaming.views.history.rebalances import latest, rebalances
from streaming.views.sentences.why import Why, explain, why
from streaming.views.state.causes import GroupKind
from tests.streaming.views.recordings import Replay

FIRST, SECOND = "word-count-17e2-StreamThread-1-consumer-7e47", "word-count-ae68-StreamThread-1-consumer-f76e"
"""The instances of Kafka Streams."""


def explained(group: GroupView) -> dict[int, Why]:
    """Return the explanation of each rebalance, by its generation."""
    told = [explain(group, rebalance) for rebalance in rebalances(group.events, group.waiting_partitions)]
    return {each.generation_id: each for each in told}


def lines(replay: Replay) -> list[str]:
    return [line.text for line in timeline_lines(answers.timeline(replay.views, replay.group))]


@pytest.fixture(scope="module")
def cooperative() -> Replay:
    """Two consumers with a cooperative assignor: bo joins ana, both call enforceRebalance, and close."""
    replay = Replay("coop")
    replay.all(more_ms=1_000)
    return replay


@pytest.fixture(scope="module")
def streams() -> Replay:
    """Two instances of Kafka Streams with a stateful task each; a second one starts, and both are closed."""
    replay = Replay("streams")
    replay.all(more_ms=20_000)
    return replay


# -- cooperative consumers ---------------------------------------------------------------------------------------------


def test_two_rounds_are_one_rebalance(cooperative: Replay) -> None:
    """The second round is part of the rebalance for the newcomer, and has no cause of its own."""
    answer = explained(cooperative.group)[3]
    assert 2 not in explained(cooperative.group)
    assert (answer.cause, answer.is_avoidable) == ("member_joined", False)
    assert answer.what.endswith("for 2.5 s, to generation 3: 2 partitions changed hands among 2 members.")
    assert answer.who == "bo-5dc2 at /127.0.0.1 joined."
    assert answer.details == ["It went on: 2 partitions that ana-da96 gave up were given to bo-5dc2."]


def test_timeline_shows_two_rounds_as_one_rebalance(cooperative: Replay) -> None:
    assert (
        'member joined, bo-5dc2 at /127.0.0.1 ("need to re-join with the given member-id"); then cooperative round;'
        " took 2.5 s in 2 rounds; 2 members, led by ana-da96; joined bo-5dc2; 2 partitions changed hands"
    ) in lines(cooperative)
    row = answers.timeline(cooperative.views, cooperative.group).rebalances[1]
    assert (row.generations, row.generation_id, row.duration_ms, row.moved) == ([2, 3], 3, 2_461, 2)


def test_running_round_continues_the_rebalance() -> None:
    """Between the rounds the rebalance is over; when ana joins again, the same rebalance runs on."""
    replay = Replay("coop")
    between = replay.until(5_200)
    assert (last := latest(between.events)) is not None
    assert (last.generation_id, last.ended_ms is None) == (2, False)
    running = why(replay.until(5_900))
    assert running is not None
    assert running.what.endswith(" and still rebalances.")
    assert running.at_ms == replay.begin_ms + 3_835
    assert running.details == ["It goes on: ana-da96 gave up 2 partitions, and joined again."]
    assert answers.summary(replay.group, {}, replay.now_ms).rebalances_1h == 2


def test_a_rebalance_by_hand_has_the_members_own_reason(cooperative: Replay) -> None:
    """enforceRebalance of the leader, and of a follower: no topic has changed, and nothing that one could set."""
    for generation_id, who in (
        (4, 'ana-da96 at /127.0.0.1 joined again, with the reason "asked by hand".'),
        (
            5,
            'bo-5dc2 at /127.0.0.1 joined again, with the reason "asked by hand, too".',
        ),
    ):
        answer = explained(cooperative.group)[generation_id]
        assert (answer.cause, answer.is_avoidable, answer.who) == ("requested", False, who)
        assert "partitions" not in answer.advice
    assert (
        'requested, ana-da96 at /127.0.0.1 ("asked by hand"); took 1.1 s (joins 707 ms, plan 405 ms); 2 members, '
        in ("\n".join(lines(cooperative)))
    )


def test_a_further_round_counts_against_nobody(cooperative: Replay) -> None:
    counts = {each.client_id: each.rebalances for each in unstable_clients(cooperative.group, 0)}
    assert counts == {"ana": 3, "bo": 3}, "each joined, asked by hand and left"
    assert cooperative.group.tallied.rebalances["cooperative_round"] == 1


def test_the_last_member_leaves_its_partitions_to_nobody(cooperative: Replay) -> None:
    told = explained(cooperative.group)
    assert told[6].advice == "Unavoidable: the partitions of a member that left go to other members."
    assert told[7].advice == "Unavoidable: the last member left. Nobody owns the partitions until a member joins."


def test_the_standard_reason_of_a_first_join_is_short(cooperative: Replay) -> None:
    """The client repeats the whole member id in it, on each join; the answers as JSON have it whole."""
    assert 'bo-5dc2 joined from /127.0.0.1 ("need to re-join with the given member-id")' in lines(cooperative)
    assert all(
        "reason" not in each.who for each in explained(cooperative.group).values() if each.cause == "member_joined"
    )
    bo = explained(cooperative.group)[3]
    assert bo.reason == f"need to re-join with the given member-id: {bo.member_id}"


# -- static members ----------------------------------------------------------------------------------------------------


def test_a_restart_of_a_static_member_is_told_as_one() -> None:
    """It is closed and started, then killed and started, each time within its session: no rebalance, and no fault."""
    replay = Replay("static")
    replay.all(more_ms=1_000)
    assert lines(replay)[-2:] == [
        "till-1 restarted at /127.0.0.1: till-1-7337 goes on as till-1 in place of till-1-64e0",
        "till-1 restarted at /127.0.0.1: till-1-9f9d goes on as till-1 in place of till-1-7337",
    ]
    assert list(explained(replay.group)) == [1]


def test_a_static_member_that_does_not_come_back_may_have_been_stopped() -> None:
    replay = Replay("static")
    answer = why(replay.all(more_ms=30_000))
    assert answer is not None
    assert (answer.cause, answer.is_avoidable, answer.setting) == ("session_expired", None, None)
    assert answer.who == "till-1-9f9d at /127.0.0.1 did not come back within its session of 20.0 s."
    assert answer.advice == (
        "Not known: a member with a group.instance.id does not leave when it is closed. If somebody stopped it, nothing"
        " is wrong. If it was restarted, session.timeout.ms (20.0 s) must be longer than a restart."
    )


# -- Kafka Streams -----------------------------------------------------------------------------------------------------


def test_an_instance_of_kafka_streams_that_closes_is_not_accused(streams: Replay) -> None:
    """It does not leave, so its session expires; whether it was stopped is not known."""
    answer = explained(streams.group)[7]
    assert streams.group.kind is GroupKind.STREAMS
    assert (answer.cause, answer.is_avoidable, answer.setting) == ("session_expired", None, None)
    assert (
        answer.who == "word-count-ae68-StreamThread-1-consumer-f76e at /127.0.0.1 was silent for 6.0 s and was dropped."
    )
    assert answer.advice == (
        "Not known: an instance of Kafka Streams does not leave its group when it is closed, so its session expires. If"
        " somebody stopped it, nothing is wrong. If it still runs, check session.timeout.ms (6.0 s)."
    )


def test_the_round_that_a_receiver_of_tasks_begins_is_a_further_round(streams: Replay) -> None:
    """The leader gives up lines 0-3; the newcomer, not the leader, joins again for them."""
    answer = explained(streams.group)[4]
    assert (answer.cause, answer.who) == (
        "member_joined",
        "word-count-ae68-StreamThread-1-consumer-f76e at /127.0.0.1 joined.",
    )
    (sentence,) = answer.details
    assert sentence.startswith(
        "It went on: 4 partitions that word-count-17e2-StreamThread-1-consumer-7e47 gave up were "
    )


def test_a_scheduled_rebalance_is_told_as_such(streams: Replay) -> None:
    """Warm-up tasks have restored their state, and become active ones: a rebalance of two rounds."""
    answer = explained(streams.group)[6]
    assert (answer.cause, answer.is_avoidable) == ("scheduled", False)
    assert "probing.rebalance.interval.ms" in answer.advice
    assert len(answer.details) == 1
    counts = {each.client_id: each.rebalances for each in unstable_clients(streams.group, 0)}
    assert sum(counts.values()) == 5, "two joins, a change of the metadata, and two sessions that expired"


def test_a_leader_that_saw_a_new_topic_names_it_as_the_cause(streams: Replay) -> None:
    """Kafka Streams creates its repartition topic during the first rebalance."""
    answer = explained(streams.group)[2]
    assert answer.cause == "leader_rejoined"
    assert answer.advice == (
        "Unavoidable: a subscribed topic was created or deleted, or has more partitions now, and the leader computes"
        " new assignments."
    )


# -- Kafka Connect -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connect() -> Replay:
    """A worker gets two connectors, one of which is changed; a second worker joins; both are closed."""
    replay = Replay("connect")
    replay.all(more_ms=1_000)
    return replay


def test_workers_are_told_in_the_words_of_connect(connect: Replay) -> None:
    told = explained(connect.group)
    assert connect.group.kind is GroupKind.CONNECT
    changed = told[4]
    assert (changed.cause, changed.is_avoidable) == ("metadata_changed", False)
    assert changed.what.endswith("to generation 4, with 1 worker.")
    assert changed.who == "worker-0-bd74 at /127.0.0.1 joined again for a change of connectors or tasks."
    everything = " ".join(f"{w.what} {w.who} {w.advice} {w.details}" for w in told.values())
    assert "partition" not in everything
    assert "topics" not in everything
    assert told[11].advice == "Unavoidable: the last worker left. Connectors and tasks do not run until a worker joins."


def test_the_round_in_which_workers_pass_on_tasks_is_part_of_the_rebalance(connect: Replay) -> None:
    """The first worker's assignment revokes a connector and two tasks, and it joins again."""
    answer = explained(connect.group)[8]
    assert 7 not in explained(connect.group)
    assert (answer.cause, answer.who) == ("member_joined", "worker-1-1de2 at /127.0.0.1 joined.")
    assert answer.details == ["It went on: connectors and tasks that workers gave up were given to other workers."]


def test_changes_of_the_configuration_count_against_no_worker(connect: Replay) -> None:
    """The leader has joined again for seven of them; only joins and departures count."""
    counts = {each.client_id: each.rebalances for each in unstable_clients(connect.group, 0)}
    assert counts == {"worker-0": 2, "worker-1": 2}
    assert not any(each.flapping for each in explained(connect.group).values())


WORK = {
    # ms     worker 0: connectors and tasks                                  worker 1
    3_000: [((), {})],
    8_000: [(("orders-source",), {})],
    30_000: [(("orders-source", "refunds-source"), {"orders-source": [0, 1, 2], "refunds-source": [0]})],
    67_000: [(("orders-source",), {"orders-source": [0, 1]}), ((), {})],
    72_000: [(("orders-source",), {"orders-source": [0, 1]}),
             (("refunds-source",), {"orders-source": [2], "refunds-source": [0]})],
    129_000: [(("orders-source", "refunds-source"), {"orders-source": [0, 1, 2], "refunds-source": [0]})],
}  # fmt: skip


def test_workers_show_all_their_connectors_and_tasks() -> None:
    """An assignment has only the change; what a worker did when it joined is in its own state."""
    replay = Replay("connect")
    for at_ms, expected in WORK.items():
        rows = answers.members(replay.until(at_ms))
        works = [row.work for row in rows]
        assert [(work.connectors, work.tasks) for work in works if work is not None] == expected, at_ms


def test_the_members_of_other_groups_have_no_work(cooperative: Replay) -> None:
    replay = Replay("coop")
    (ana,) = answers.members(replay.until(3_000))
    assert (ana.work, ana.streams, ana.partitions) == (None, None, 4)
