"""Why a query failed, in one sentence that says what to do, out of Spark's long account of it."""

import re

from streaming.settings import Settings
from streaming.topics import MESSAGE_BYTES_MAX

CAUSES: list[tuple[str, str]] = [
    # what Spark's account contains            what the user is told
    (r"CorruptState: (?P<why>[^\n]*)",
     "The checkpoint {checkpoint} is damaged ({why}): restore it from a back-up, or start with an empty folder."),
    (r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY",
     "Another coordinator runs on the checkpoint {checkpoint}: stop one of the two."),
    (r"data may have been lost|Some data may have been lost|failOnDataLoss",
     "Unhandled requests are gone from {requests}: lengthen its retention; to go on without them, empty {checkpoint}."),
    (r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION|Topic .* not present in metadata",
     "A topic of the coordinator is gone ({topics}): restart the coordinator, which creates what is missing."),
    (r"(Topic|Cluster|Group)AuthorizationException|(TOPIC|CLUSTER)_AUTHORIZATION_FAILED",
     "Kafka refuses the coordinator's user: let it read and write {requests}, and write {topics}."),
    (r"SaslAuthenticationException|SslAuthenticationException|SSLHandshakeException",
     "Kafka and the coordinator do not trust each other: correct the settings that begin with sasl_ or ssl_."),
    (r"TimeoutException|BrokerNotAvailable|Connection to node .* could not be established|DisconnectException",
     "No Kafka broker answers at {bootstrap_servers}: see that it runs, and start the coordinator again: it goes on."),
    (r"RecordTooLargeException|MESSAGE_TOO_LARGE",
     "A topic refuses records of this size ({topics}): set its max.message.bytes to {room}, and start again."),
    (r"No space left on device",
     "The disk of the checkpoint {checkpoint} is full: make room, and start again."),
    (r"Permission denied|AccessControlException|Read-only file system",
     "The checkpoint {checkpoint} cannot be written: give the coordinator's user the right to, and start again."),
]  # fmt: skip


def explain(account: str, settings: Settings) -> str:
    """Turn Spark's account of a failure into one sentence; an unknown cause is quoted by its innermost line."""
    for pattern, sentence in CAUSES:
        if found := re.search(pattern, account):
            return sentence.format(
                checkpoint=settings.checkpoint,
                requests=settings.requests_topic,
                topics=", ".join((settings.replies_topic, settings.groups_topic, settings.events_topic)),
                bootstrap_servers=settings.bootstrap_servers,
                room=MESSAGE_BYTES_MAX,
                **{"why": "", **found.groupdict()},
            )
    return f"The query failed: {_innermost(account)}"


def _innermost(account: str) -> str:
    causes = re.findall(r"^Caused by: (.*)$", account, re.MULTILINE)
    return str(causes[-1] if causes else account.strip().partition("\n")[0])
