"""The intended differences from Kafka. A conversation shows each of them in a line of its own."""

from typing import NamedTuple


class Difference(NamedTuple):
    """The behaviour of each side, and the reason for the difference.

    Args:
        is_over_topics_only: Clients of a gateway see the same as with Kafka.
    """

    kafka: str
    ours: str
    why: str
    is_over_topics_only: bool = False


DIFFERENCES = {
    "a superseded request": Difference(
        "never answers the earlier one of two parked joins or syncs of a member (KAFKA-20938)",
        "answers it REBALANCE_IN_PROGRESS when the later one comes",
        "every request has exactly one answer",
    ),
    "a static member's own parked request": Difference(
        "answers FENCED_INSTANCE_ID when the same process sends a request again before it knows its id",
        "answers REBALANCE_IN_PROGRESS if both requests have the same mailbox",
        "a process that retries must not be told that another process has replaced it: clients stop at that error",
        is_over_topics_only=True,  # each connection has a mailbox of its own
    ),
    "the sync of a member that leaves": Difference(
        "never answers it",
        "answers it UNKNOWN_MEMBER_ID",
        "every request has exactly one answer",
    ),
    "a sync in a Stable group": Difference(
        "leaves the member's session as it is",
        "renews the session",
        "as all versions before 4.0 did; every request of a member renews its session (protocol.md 10, row 12)",
    ),
    "a replaced static member's client": Difference(
        "still returns the client id and host of the previous process",
        "returns those of the new process",
        "an operator must find the process that runs",
    ),
    "a deleted group's generation": Difference(
        "starts again at 1 when the group is created again",
        "continues from the last generation",
        "generations never decrease, so a process from before the deletion is never accepted as a member (S30)",
    ),
    "a long group id": Difference(
        "accepts an id of any length",
        "refuses an id of more than 249 characters",
        "group ids become keys, file names and labels",
    ),
    "unknown topics": Difference(
        "answers UNKNOWN_TOPIC_OR_PARTITION for them",
        "accepts them",
        "only a gateway reads a cluster's topics; the core knows only the names in its requests",
        is_over_topics_only=True,
    ),
    "a sync without a protocol": Difference(
        "refuses it from version 5 on",
        "accepts it, as Kafka does before version 5",
        "this project's requests have no versions; the gateway refuses such a sync itself",
        is_over_topics_only=True,
    ),
    "a protocol offered twice": Difference(
        "counts it twice and finds no common protocol: a lone member's join is never answered; the others get 23",
        "counts it once",
        "every request has exactly one answer, and one client's error must not end the group of the others",
    ),
    "a plan without a heartbeat": Difference(
        "makes the plan that a leaving member or a removal makes due at the next heartbeat of any member",
        "makes it at once",
        "no group waits for a heartbeat of one of its members (KIP-848 says nothing of when)",
    ),
    "topics change at once": Difference(
        "notices at the next heartbeat of any member that a topic has changed",
        "raises the group epoch and plans when a gateway tells of the change",
        "new partitions are read sooner",
    ),
    "a pattern's first answer": Difference(
        "resolves a pattern after the heartbeat that brings it, so the first answer is empty",
        "resolves it with that heartbeat",
        "a member need not wait for one more heartbeat",
    ),
    "a fetch with an epoch alone": Difference(
        "answers UNKNOWN_SERVER_ERROR to a fetch with an epoch and no member id",
        "answers UNKNOWN_MEMBER_ID",
        "the request is wrong, and not the server",
    ),
}
