"""Records for the request topic of another coordinator."""

from msgspec import Struct

from coordinator.move_requests import PeerRecord


class ToPeer(Struct, frozen=True):
    """A record for the coordinator whose prefix is `record.to`, one of the setting `peers`."""

    record: PeerRecord
