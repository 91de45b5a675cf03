"""What was read of one group so far: its position in both topics, its lives, and the findings that wait for the end."""

from typing import NamedTuple

from msgspec import Struct, field

from coordinator.messages.group_records import GroupRecord
from streaming.verify.consumers import ConsumerAudit
from streaming.verify.findings import Finding
from streaming.verify.offsets import Committed
from streaming.verify.owners import Owners
from streaming.verify.tokens import Tokens
from streaming.verify.version_audit import VersionAudit
from streaming.wire.newest_records import NewestRecords


class ReadPosition(Struct):
    """The reader's position in one topic of a group: the life, the version and the generation.

    A life ends when the group is removed, or when it moves to another coordinator.

    Args:
        first: The first version that was seen of this life.
        removed: How many records were gone from the partition before the group's latest record.
        latest_ms: The group's own time of its latest record.
        ended_ms: When the life ended, if it has; `ended_as` is how many groups had ended by then.
    """

    life: int = 0
    version: int = 0
    first: int = 0
    removed: int = 0
    latest_ms: int = 0
    generation_id: int = -1
    ended_ms: int | None = None
    ended_as: int = 0

    def begin_anew(self, *, is_remembered: bool) -> None:
        self.life, self.version, self.ended_ms = self.life + 1, 0, None
        if not is_remembered:
            self.generation_id = -1


class Watched(Struct):
    """The data of a group that were read so far. Times and versions are kept by life.

    Args:
        is_blurred: Whether the group has ended while records are gone from the topics. Then it is uncertain which lives
            of the two topics belong together and which record repeats which, so versions and generations are no longer
            judged.
        arrived: The lives that began at another coordinator.
        late: By key, the place and the writing time of a last record that is older than a record before it.
    """

    places: tuple[ReadPosition, ReadPosition] = field(default_factory=lambda: (ReadPosition(), ReadPosition()))
    lives: dict[int, VersionAudit] = field(default_factory=dict)
    deleted_ms: dict[int, int] = field(default_factory=dict)
    founded_ms: dict[int, int] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    latest: GroupRecord | None = None
    owners: Owners = field(default_factory=Owners)
    is_blurred: bool = False
    committed: dict[tuple[str, int], Committed] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    consumers: ConsumerAudit = field(default_factory=ConsumerAudit)
    newest: NewestRecords = field(default_factory=NewestRecords)
    late: dict[bytes, tuple[str, int]] = field(default_factory=dict)

    def pass_over_an_end(self, topic: int) -> None:
        self.places[topic].begin_anew(is_remembered=False)
        self.is_blurred = True


class Held(NamedTuple):
    """A finding that is reported at the end.

    Args:
        life: The life of the group.
        is_first: Whether the record is the first one of the life in its topic.
    """

    finding: Finding
    life: int
    is_first: bool
