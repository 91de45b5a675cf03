"""Records for the request topic of another coordinator."""

from msgspec import Struct

from coordinator.move_requests import AdoptSlots, PeerRecord


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
