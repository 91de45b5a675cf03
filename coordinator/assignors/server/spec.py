"""The input and the output of a server assignor.

Topics are named by their ids, as Kafka prints them: 16 bytes in 22 characters of URL-safe base64.

Source: Kafka's PartitionAssignor, GroupSpec, MemberSubscription and GroupAssignment; KIP-848.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

Target = dict[str, list[int]]
"""The partitions that one member is to own: numbers in ascending order, by topic id. No topic has an empty list."""

Targets = dict[str, Target]
"""The targets by member id. A member without partitions has an entry too."""


class MemberSpec(Struct, frozen=True):
    """A member, with the data that an assignor needs.

    Args:
        topic_ids: The ids of the existing topics that the member subscribes to.
        target: The member's part of the plan before, by topic id; the topics may have gone since.
    """

    member_id: str
    group_instance_id: str | None
    topic_ids: frozenset[str]
    target: Mapping[str, Sequence[int]] = {}


class GroupSpec(Struct, frozen=True):
    """The members and the topics of a plan.

    Args:
        members: In the order in which they joined.
        partitions: How many partitions each existing topic has, by topic id.
        names: The topic names by topic id.
        is_homogeneous: All members have the same subscription.
        names_subscribed: How many names one member of a homogeneous group subscribes to, unknown topics included.
    """

    members: Sequence[MemberSpec]
    partitions: Mapping[str, int]
    names: Mapping[str, str]
    is_homogeneous: bool
    names_subscribed: int


ServerAssignor = Callable[[GroupSpec], Targets]
