"""The responses to requests about groups that move between coordinators (moving.md 1)."""

from msgspec import Struct

from coordinator.outputs.base_answer import Answer


class ReleaseGroupAnswer(Answer, frozen=True, kw_only=True, tag="release_group"):
    """The target has adopted the group. An error has the reason for which it was not released, or was refused."""

    move_id: str = ""
    number: int = 0


class CancelMoveAnswer(Answer, frozen=True, kw_only=True, tag="cancel_move"):
    """The verdict about the move: `adopted`, or the reason of the refusal."""

    verdict: str = ""


class TakeBackAnswer(Answer, frozen=True, kw_only=True, tag="take_back"):
    """The source serves the group again."""


class CheckAdoptionAnswer(Answer, frozen=True, kw_only=True, tag="check_adoption"):
    """The reason for which a move would be refused now, and a sentence about it; null if it would not be refused."""

    reason: str | None = None
    why: str | None = None


class ImportGroupAnswer(Answer, frozen=True, kw_only=True, tag="import_group"):
    """The result: `adopted`, `adopted before`, `kept` while other parts are missing, or the reason of the refusal."""

    result: str = ""


class ReleaseSlotsAnswer(Answer, frozen=True, kw_only=True, tag="release_slots"):
    """The shard creates no groups of these slots any more.

    Args:
        slots: How many slots of the request have names in the shard.
        listed: How many names the target gets to know with them.
    """

    slots: int = 0
    listed: int = 0


class OwnedSlots(Struct, frozen=True, kw_only=True):
    """Slots with the same owner and number.

    Args:
        slots: Such as "0-511,600".
        owner: The prefix of the coordinator that owns them; null if it is not known here.
        number: The number of their last move; 0 if they have never moved.
    """

    slots: str
    owner: str | None
    number: int


class DescribeSlotsAnswer(Answer, frozen=True, kw_only=True, tag="describe_slots"):
    """The owners of the slots that have names in the shard.

    Args:
        owned: The slots in the order of their numbers, each in one entry.
        arriving: The slots that are released to this coordinator, and of which records are missing; "" for none.
        guests: Names here whose slots have another owner, in their order, at most `GUESTS_LISTED_MAX`.
        has_more: There are guests behind the last one.
        peers: The prefixes of the coordinators with which this one exchanges groups, in their order.
    """

    owned: tuple[OwnedSlots, ...] = ()
    arriving: str = ""
    guests: tuple[str, ...] = ()
    has_more: bool = False
    peers: tuple[str, ...] = ()
