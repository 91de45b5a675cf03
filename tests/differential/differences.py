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
        "answers FENCED_INSTANCE_ID when the same process asks again before it knows its id",
        "answers REBALANCE_IN_PROGRESS where both requests have one inbox",
        "a process that lost patience must not be told that another one has come: clients end on that",
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
        "as all versions before 4.0 did; a request is a sign of life (protocol.md 10, row 12)",
    ),
    "a replaced static member's client": Difference(
        "goes on showing the client id and host of the process that is gone",
        "shows those of the process that has come",
        "who looks for a member must find the one that runs",
    ),
    "a deleted group's generation": Difference(
        "starts again at 1 when the group is founded anew",
        "goes on where it was",
        "generations never fall, so a process from before the deletion cannot pass for a member (S30)",
    ),
    "a long group id": Difference(
        "takes one of any length",
        "refuses more than 249 characters",
        "group ids become keys, file names and labels",
    ),
    "unknown topics": Difference(
        "answers UNKNOWN_TOPIC_OR_PARTITION for them",
        "takes them",
        "only a gateway sees a cluster's topics; the core knows the names that it is told",
        is_over_topics_only=True,
    ),
    "a sync without a protocol": Difference(
        "refuses it from version 5 on",
        "takes it, as Kafka does before version 5",
        "our requests have no versions; a gateway that serves them refuses it itself",
        is_over_topics_only=True,
    ),
    "a protocol offered twice": Difference(
        "counts it twice, so that nobody seems to have it: alone, the join is never answered; the others hear 23",
        "counts it once",
        "every request has exactly one answer, and one client's slip must not cost the others their group",
    ),
    "a subscription that cannot be read": Difference(
        "never answers a join whose metadata announces more topics than it has bytes for",
        "takes it for a member that may read any topic",
        "every request has exactly one answer (protocol.md 2.3)",
    ),
}
