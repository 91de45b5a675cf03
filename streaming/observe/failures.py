"""The causes of a failed observer as sentences, before those that it shares with the coordinator's query."""

from streaming.errors import Exit
from streaming.kafka.acls import SOURCE_TOPIC
from streaming.query.spark.failures import CAUSES as SHARED
from streaming.query.spark.failures import CONCURRENT, Causes

_AGAIN, _PERSON = Exit.FAILED, Exit.NEEDS_A_PERSON

CAUSES: Causes = [
    (r"CorruptState: (?P<why>[^\n]*)", _PERSON,
     ("The checkpoint {checkpoint} is damaged ({why}): restore it from a back-up, or start with another"
     " observe_checkpoint and another observe_prefix.")),
    (CONCURRENT, _PERSON,
     "Another observer runs on the checkpoint {checkpoint}: stop one of the two."),
    (r"data may have been (?:lost|missed)|KAFKA_DATA_LOSS", _PERSON,
     (f"Records of {SOURCE_TOPIC} were deleted before the observer read them: start with another observe_checkpoint"
     " and another observe_prefix.")),
    (r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION|Topic .* not present in metadata", _AGAIN,
     f"A topic of the observer or {SOURCE_TOPIC} is missing: start again; the start creates its own topics."),
    (r"GroupAuthorizationException|Not authorized to access group", _PERSON,
     ("Kafka refuses the observer's user: let it describe the groups whose ids begin with {prefix}; `coordinator acls"
     " observer` prints the command.")),
    (r"(Topic|Cluster)AuthorizationException|(TOPIC|CLUSTER)_AUTHORIZATION_FAILED", _PERSON,
     (f"Kafka refuses the observer's user: let it read {SOURCE_TOPIC}, and read and write its own topics; `coordinator"
     " acls observer` prints the commands.")),
    (r"SaslAuthenticationException|SslAuthenticationException", _PERSON,
     "Kafka and the observer cannot authenticate each other: correct the settings that begin with sasl_ or ssl_."),
    (r"cannot grow beyond 2GB", _PERSON,
     "A batch has 2 GiB of records of a partition: lower observe_records_per_batch."),
    *SHARED,
]  # fmt: skip
"""A pattern in Spark's report, the exit code, and the message to the user; see `query.failures`."""
