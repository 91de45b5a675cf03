"""How far a shard knows the ends of transactions, by the reports about the transactions topic."""

from msgspec import Struct

from coordinator.base.limits import RECORD_OFFSET_END


class Settled(Struct):
    """The place before which all transactions of a topic have ended, and which ones are open there.

    Places are those of one topic. If it is made anew, the places begin at 0 again, and the ends of the transactions
    before are lost.

    Args:
        topic_id: The id of the topic; "" before the first commit or report.
        before: The place before which all transactions have ended, but for those in `open`.
        open: By producer id, the first place of its open transaction.
    """

    topic_id: str = ""
    before: int = 0
    open: dict[int, int] = {}

    def is_other(self, topic_id: str) -> bool:
        """Return whether this is not the topic of the places."""
        return bool(self.topic_id) and topic_id != self.topic_id

    def has_ended(self, producer_id: int, record_offset: int) -> bool:
        """Return whether the transaction of a producer's record has ended."""
        return record_offset < min(self.before, self.open.get(producer_id, RECORD_OFFSET_END))

    def begin(self, topic_id: str) -> None:
        """Use the places of another topic from now on."""
        self.topic_id, self.before, self.open = topic_id, 0, {}
