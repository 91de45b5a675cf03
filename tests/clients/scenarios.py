"""The scenarios that the clients play, and the scenarios that a client cannot play.

A session that has to expire has a timeout of 6 s. All other session timeouts are longer than any wait of a play, so
only the scenario itself ends a membership.
"""

from collections.abc import Callable

from tests.clients.kinds import AIOKAFKA, FRANZ_GO, FRANZ_GO_848, JAVA, JAVA_848, SARAMA, Kind, another
from tests.clients.play import DEFAULTS, SESSION_MS, Play
from tests.clients.worker import Worker

Scenario = Callable[[Play, Kind], None]

SILENCE_S = (SESSION_MS - DEFAULTS["heartbeat_ms"]) / 1000
"""The shortest time from the end of a member to its expiry, in seconds. Its last heartbeat may be a little earlier."""


def joins_alone(play: Play, kind: Kind) -> None:
    """Check that the only member owns all partitions and reads all of their records."""
    topic = play.topic(partitions=3, records=5)
    x = play.start(kind)
    play.until_shared(topic, x)
    play.until_read(x)
    assert all(x.read[partition] == [0, 1, 2, 3, 4] for partition in play.partitions(topic))


def joins_a_mixed_group(play: Play, kind: Kind) -> None:
    """Check that the client and a client of another kind each own half of the topic. Either may be the leader."""
    topic = play.topic(partitions=4)
    x, y = play.start(kind), play.start(another(kind))
    play.until_shared(topic, x, y)
    assert len(x.owned) == len(y.owned) == 2
    play.produce(topic, 3)
    for worker in (x, y):
        play.until_read(worker)


def one_leaves(play: Play, kind: Kind) -> None:
    """Check that the other member owns all partitions after the leave, without waiting for a session timeout."""
    topic = play.topic(partitions=2)
    x, y = play.start(kind), play.start(kind)
    play.until_shared(topic, x, y)
    x.close()
    play.until_shared(topic, y)
    play.produce(topic, 2)
    play.until_read(y)


def one_is_killed(play: Play, kind: Kind) -> None:
    """Check that the other member owns all partitions after the killed member's session timeout, and not before."""
    topic = play.topic(partitions=2)
    x, y = (play.start(kind, session_ms=SESSION_MS) for _ in range(2))
    play.until_shared(topic, x, y)
    x.kill()
    assert play.until_shared(topic, y) > SILENCE_S
    play.produce(topic, 2)
    play.until_read(y)


def resumes_from_its_commit(play: Play, kind: Kind) -> None:
    """Check that the next owner reads from the committed offset: no committed record again, and no record lost."""
    topic = play.topic(partitions=2, records=5)
    x = play.start(kind)
    play.until_shared(topic, x)
    play.until_read(x)
    if kind.obeys:
        x.order("commit")
    play.until(lambda: set(x.committed.values()) == {5} and x.committed.keys() == x.owned)
    play.produce(topic, 5)
    play.until_read(x)
    x.close()
    y = play.start(kind)
    play.produce(topic, 5)
    play.until_shared(topic, y)
    play.until_read(y)
    assert all(y.read[partition] == list(range(x.committed[partition], 15)) for partition in y.owned)


def a_static_member_restarts(play: Play, kind: Kind) -> None:
    """Check that a restarted static member gets the same partitions, and the other member keeps its partitions."""
    topic = play.topic(partitions=4)
    x, y = play.start(kind, instance="desk-1"), play.start(kind, instance="desk-2")
    play.until_shared(topic, x, y)
    had, moves = set(x.owned), y.events_of("assigned", "revoked", "lost")
    x.close()
    again = play.start(kind, instance="desk-1")
    play.until(lambda: again.owned == had)
    play.produce(topic, 3)
    for worker in (again, y):
        play.until_read(worker)
    assert y.events_of("assigned", "revoked", "lost") == moves


def shares_out_cooperatively(play: Play, kind: Kind) -> None:
    """Check that the first member loses only the partitions that the second one gets, and keeps reading the others."""
    topic = play.topic(partitions=4, records=5)
    x = play.start(kind, assignor="cooperative-sticky")
    play.until_shared(topic, x)
    play.until_read(x)
    y = play.start(kind, assignor="cooperative-sticky")
    play.until_shared(topic, x, y)
    play.produce(topic, 5)
    for worker in (x, y):
        play.until_read(worker)
    assert {
        tuple(partition) for event in x.events_of("revoked", "lost") for partition in event["partitions"]
    } == y.owned
    assert all(x.read[partition] == list(range(10)) for partition in x.owned), (
        "the kept partitions are read without a gap or a repeat"
    )


def follows_a_pattern(play: Play, kind: Kind) -> None:
    """Check that a member reads a topic that matches its pattern and was created after its join."""
    first = play.topic(partitions=1, records=2, suffix="-a")
    x = play.start(kind, pattern=f"^{play.name}-.*", metadata_ms=1_000)
    play.until(lambda: x.read[first, 0] == [0, 1])
    second = play.topic(partitions=1, records=2, suffix="-b")
    play.until(lambda: x.read[second, 0] == [0, 1])


def sleeps_through_its_session(play: Play, kind: Kind) -> None:
    """Check that a paused member is expelled, the other member owns all partitions, and the member joins again."""
    topic = play.topic(partitions=2)
    x, y = (play.start(kind, session_ms=SESSION_MS) for _ in range(2))
    play.until_shared(topic, x, y)
    x.stop()
    assert play.until_shared(topic, y) > SILENCE_S
    x.resume()
    _await_both_owners(play, topic, x, y)


def polls_too_late(play: Play, kind: Kind) -> None:
    """Check that a member leaves if the application does not poll, although it sends heartbeats, and joins again."""
    topic = play.topic(partitions=2)
    x, y = play.start(kind, session_ms=SESSION_MS, max_poll_ms=SESSION_MS), play.start(kind)
    play.until_shared(topic, x, y)
    x.order("pause")
    play.until_shared(topic, y)
    x.order("resume")
    _await_both_owners(play, topic, x, y)


def _await_both_owners(play: Play, topic: str, x: Worker, y: Worker) -> None:
    play.until_shared(topic, x, y)
    play.produce(topic, 2)
    for worker in (x, y):
        play.until_read(worker)


SCENARIOS: dict[str, Scenario] = {
    "joins alone": joins_alone,
    "in a mixed group": joins_a_mixed_group,
    "one leaves": one_leaves,
    "one is killed": one_is_killed,
    "commits, resumes": resumes_from_its_commit,
    "static member": a_static_member_restarts,
    "cooperative-sticky": shares_out_cooperatively,
    "pattern": follows_a_pattern,
    "sleeps for longer than its session": sleeps_through_its_session,
    "polls too late": polls_too_late,
}

LACKS: dict[tuple[str, Kind], str] = {
    ("cooperative-sticky", AIOKAFKA): "aiokafka has no cooperative assignor",
    ("pattern", SARAMA): "sarama subscribes to topics by name only",
    ("polls too late", JAVA): "the tools that stand for the Java client never stop polling",
    ("polls too late", JAVA_848): "the tools that stand for the Java client never stop polling",
    ("polls too late", FRANZ_GO): "franz-go has no limit on the time between polls",
    ("polls too late", FRANZ_GO_848): "franz-go has no limit on the time between polls",
    ("polls too late", SARAMA): "sarama has no limit on the time between polls",
}
"""The scenarios that a client cannot play, with the reasons. A client must play all others."""
