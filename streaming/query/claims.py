"""The records of the lease topic, and the driver that holds the lease after them.

The topic has one partition, so all drivers read the same records in the same order, and come to the same holder.

    record  | written by                           | it counts if
    claim   | a driver that has seen no renewal    | its term is the next one, and no record has counted since
            |                                      | the record that it names
    renewal | the holder, all the time             | it is the holder's, or its term is a later one
    release | the holder, after its query stopped  | it is the holder's
    stop    | the holder, in place of a release    | it is the holder's; the drivers that stand by end too

A claim is a compare-and-set that the order of the log decides: of several claims after the same record only the first
one counts, and none counts after a renewal that came in between. A driver that was suspended while another one claimed
the lease writes renewals of an old term, which count for nobody. Only a driver whose claim counted writes a renewal. So
a reader that begins in the middle of the log accepts a renewal of a later term without having read its claim.
"""

from enum import StrEnum

import msgspec

NOTHING = -1
"""The offset that a claim names if no record has counted before."""


class Kind(StrEnum):
    """The kinds of records."""

    CLAIM = "claim"
    RENEWAL = "renewal"
    RELEASE = "release"
    STOP = "stop"


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the lease topic.

    Args:
        driver: The id of the driver that writes it.
        host: The name of the driver's machine, for people.
        term: The number of the claim, from 1; the same in all records of one holder.
        after: For a claim, the offset of the last record that counted; else `NOTHING`.
    """

    kind: Kind
    driver: str
    host: str
    term: int
    after: int = NOTHING


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LeaseRecord)


def encode(record: LeaseRecord) -> bytes:
    """Return the value of a record."""
    return _encoder.encode(record)


def decode(value: bytes | None) -> LeaseRecord | None:
    """Return the record in a value; None if the value contains none."""
    try:
        return _decoder.decode(value or b"")
    except msgspec.MsgspecError:
        return None


class Claims:
    """The state of the lease after the records that were read. This class does not use Kafka.

    `holder` is the latest record of the driver that holds the lease; None if no driver holds it. `term` is the latest
    term. `last` is the offset of the last record that counted.
    """

    def __init__(self) -> None:
        self.holder: LeaseRecord | None = None
        self.term = 0
        self.last = NOTHING

    def handle(self, offset: int, record: LeaseRecord) -> bool:
        """Add the next record, and return whether it counts."""
        if not self._counts(record):
            return False
        self.holder = None if record.kind in (Kind.RELEASE, Kind.STOP) else record
        self.term, self.last = record.term, offset
        return True

    def is_held_by(self, driver: str) -> bool:
        """Return whether this driver holds the lease."""
        return self.holder is not None and self.holder.driver == driver

    def claim(self, driver: str, host: str) -> LeaseRecord:
        """Return a claim after all records that were read."""
        return LeaseRecord(kind=Kind.CLAIM, driver=driver, host=host, term=self.term + 1, after=self.last)

    def _counts(self, record: LeaseRecord) -> bool:
        match record.kind:
            case Kind.CLAIM:
                return record.term == self.term + 1 and record.after == self.last
            case Kind.RENEWAL:
                return record.term > self.term or self._is_of_holder(record)
            case Kind.RELEASE | Kind.STOP:
                return self._is_of_holder(record)

    def _is_of_holder(self, record: LeaseRecord) -> bool:
        return record.term == self.term and self.is_held_by(record.driver)
