"""What a step of a shard brings: responses, published records, events, and records for other coordinators.

Each type is the JSON object that a record holds. `Reply`, `Published`, `AnyEvent` and `ToPeer` determine the topic.
Their contents come only from the coordinator's own state, never from a topic name in a request.
"""

import msgspec
from msgspec import Struct

from coordinator.messages.events import AnyEvent
from coordinator.messages.group_records import Published
from coordinator.messages.move_requests import AdoptSlots, PeerRecord
from coordinator.messages.responses import Reply

_encode = msgspec.json.Encoder().encode


class ToPeer(Struct, frozen=True):
    """A record for the coordinator whose prefix is `record.to`, one of the setting `peers`.

    Args:
        partition: The partition of its request topic; None if the hash of the name decides.
    """

    record: PeerRecord
    partition: int | None = None

    @property
    def name(self) -> str:
        """The name that the record is about; "" if it is about slots."""
        return "" if isinstance(self.record, AdoptSlots) else self.record.group_id


Output = Reply | Published | AnyEvent | ToPeer


def size_of(output: Output) -> int:
    """Return the length of an output's record, in bytes."""
    if isinstance(output, Reply):
        return len(_encode(output.answer))
    if isinstance(output, Published | ToPeer):
        return len(_encode(output.record))
    return len(_encode(output))
