"""The check for a checkpoint that is lost, as a volume that is not mounted, or of which a part is lost.

    what a start finds in CHECKPOINT/query     topics without records     topics with records
    nothing, or no such folder                 a new checkpoint           refused, unless `checkpoint_may_be_empty`
    a part: plans, commits, state, metadata    refused                    refused

Spark would begin with no group, and acknowledged commits would be gone without a word. Records on the topics that only
a batch writes prove that there was one: its plan is stored before its records are written.
"""

from collections.abc import Collection

from pyspark.sql import SparkSession

from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch
from streaming.kafka.offsets import OffsetAsker
from streaming.kafka.topics import Topic
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.parts import REPLANNED, missing_parts

CLIENT_ID = "coordinator-lost"


def refuse_lost(spark: SparkSession, settings: Settings, written: Collection[Topic]) -> None:
    """Check that a checkpoint without a batch is a new one, and that one with batches has all its parts.

    Args:
        written: The topics that only batches of this checkpoint write.

    Raises:
        CheckpointMismatch: The checkpoint or a part of it is lost.
        BrokerUnreachable: No broker answers.
    """
    query = checkpoint.query_folder(settings)
    plans, commits = (checkpoint.batches(spark, f"{query}/{part}") for part in ("offsets", "commits"))
    if missing := list(missing_parts(plans, commits, lambda name: checkpoint.exists(spark, f"{query}/{name}"))):
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} is damaged (missing: {', '.join(missing)}): restore it from a"
            " back-up, or start with an empty folder and another topic_prefix."
        )
    has_begun = plans or checkpoint.names(spark, f"{settings.checkpoint}/{REPLANNED}")
    if not (has_begun or settings.checkpoint_may_be_empty) and (topic := _with_records(settings, written)):
        raise CheckpointMismatch(
            f"The checkpoint {settings.checkpoint} has no batch, and {topic} has records of batches: mount or restore"
            " the folder that has them, or choose another topic_prefix; to start over without the groups of that time,"
            " set checkpoint_may_be_empty."
        )


def _with_records(settings: Settings, topics: Collection[Topic]) -> str | None:
    """Return a topic that has or had records; None if none has."""
    asker = OffsetAsker(settings, CLIENT_ID)
    try:
        ends = asker.await_all((topic.name, number) for topic in topics for number in range(topic.partitions))
    finally:
        asker.close()
    return next((topic for (topic, _), end in sorted(ends.items()) if end > 0), None)
