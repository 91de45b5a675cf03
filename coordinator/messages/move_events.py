"""Events of groups and slots that move between coordinators (moving.md 2.4, 4.3)."""

from coordinator.messages.fields import Event


class GroupReleased(Event, frozen=True, kw_only=True, tag="group_released"):
    """The coordinator has stopped serving the group, and sends it to the coordinator `to`, in `bytes` bytes."""

    to: str
    move_id: str
    number: int
    bytes: int


class GroupMoved(Event, frozen=True, kw_only=True, tag="group_moved"):
    """The coordinator `to` serves the group. The records of the group end here, with tombstones."""

    to: str
    move_id: str
    number: int


class GroupTakenBack(Event, frozen=True, kw_only=True, tag="group_taken_back"):
    """The move to the coordinator `to` was refused, for `reason`, and the group is served here again."""

    to: str
    move_id: str
    number: int
    reason: str


class GroupArrived(Event, frozen=True, kw_only=True, tag="group_arrived", rename={"source": "from"}):
    """The group has come from the coordinator `source`, `from` in JSON, where its last version was `version_before`."""

    source: str
    move_id: str
    number: int
    version_before: int


class MoveIgnored(Event, frozen=True, kw_only=True, tag="move_ignored", rename={"source": "from"}):
    """A record of another coordinator about the name was ignored. `why` is the reason.

    It is no event of the group, and has no version.
    """

    source: str
    record: str
    move_id: str
    number: int
    partition: int
    why: str


class SlotsReleased(Event, frozen=True, kw_only=True, tag="slots_released"):
    """A shard creates no groups of these slots any more, because the coordinator `to` gets them.

    Args:
        slots: The slots of the shard, such as "0-511,600".
        listed: How many names the other coordinator gets to know with them.
    """

    to: str
    number: int
    partition: int
    slots: str
    listed: int


class SlotsAdopted(Event, frozen=True, kw_only=True, tag="slots_adopted", rename={"source": "from"}):
    """A shard creates the groups of these slots from now on. They have come from `source`, `from` in JSON.

    Args:
        slots: The slots of the shard, such as "0-511,600".
        listed: How many names of these slots the other coordinator knew.
    """

    source: str
    number: int
    partition: int
    slots: str
    listed: int


class SlotsIgnored(Event, frozen=True, kw_only=True, tag="slots_ignored", rename={"source": "from"}):
    """A record of another coordinator about slots was ignored. `why` is the reason.

    Args:
        from_shard: The shard of the other coordinator.
    """

    source: str
    from_shard: int
    number: int
    partition: int
    why: str
