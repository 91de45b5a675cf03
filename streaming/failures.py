"""Why a query failed, in one sentence that says what to do, out of Spark's long account of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from streaming.errors import UserError
from streaming.settings import Settings
from streaming.topics import MESSAGE_BYTES_MAX


def _damaged(why: str) -> str:
    return (
        f"The checkpoint {{checkpoint}} is damaged ({why}): restore it from a back-up, or start with an empty folder."
    )


CAUSES: list[tuple[str, str]] = [
    # what Spark's account contains            what the user is told
    (r"CorruptState: (?P<why>[^\n]*)",
     _damaged("{why}")),
    (r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY",
     "Another coordinator runs on the checkpoint {checkpoint}: stop one of the two."),
    (r"data may have been lost|Some data may have been lost|failOnDataLoss",
     "Unhandled requests are gone from {requests}: lengthen its retention; to go on without them, empty {checkpoint}."),
    (r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION|Topic .* not present in metadata",
     "A topic of the coordinator is gone ({topics}): restart it; it makes the topic anew, or says what else to do."),
    (r"(Topic|Cluster|Group)AuthorizationException|(TOPIC|CLUSTER)_AUTHORIZATION_FAILED",
     "Kafka refuses the coordinator's user: let it read and write {requests}, and write {topics}."),
    (r"SaslAuthenticationException|SslAuthenticationException|SSLHandshakeException",
     "Kafka and the coordinator do not trust each other: correct the settings that begin with sasl_ or ssl_."),
    (r"Expiring \d+ record\(s\) for (?P<where>\S+)-\d+:",
     "No Kafka broker answers at {bootstrap_servers}, or {where} is gone: see that both are there, and start again."),
    (r"TimeoutException|BrokerNotAvailable|Connection to node .* could not be established|DisconnectException",
     "No Kafka broker answers at {bootstrap_servers}: see that it runs, and start the coordinator again: it goes on."),
    (r"RecordTooLargeException|MESSAGE_TOO_LARGE",
     "A topic refuses records of this size ({topics}): set its max.message.bytes to {room}, and start again."),
    (r"No space left on device",
     "The disk of the checkpoint {checkpoint} is full: make room, and start again."),
    (r"Permission denied|AccessControl|Read-only file system|not a directory|NotDirectory|Mkdirs failed",
     "The checkpoint {checkpoint} cannot be written: give the coordinator's user the right to, and start again."),
    (r"MALFORMED_LOG_FILE|Incomplete log file|MISSING_METADATA_FILE|Expected e\.g\. |assertion failed",
     _damaged("what Spark notes of its batches is missing or cannot be read")),
    (r"Unexpected (character|end-of-input)|Unrecognized token|Invalid UTF-8",
     _damaged("what Spark notes of its batches is not JSON")),
    (r"CANNOT_WRITE_STATE_STORE",
     "The checkpoint {checkpoint} cannot be written: make room, see that its folder may be written, and start again."),
    (r"CANNOT_LOAD_STATE_STORE",
     _damaged("the groups' state is missing or cannot be read")),
    (r"Python worker exited unexpectedly|ExecutorLostFailure",
     "A process of Spark's has ended in mid-work: see that there is memory to spare, and start again: it goes on."),
]  # fmt: skip


class SparkRefused(UserError):
    """Spark could not begin: one sentence with the cause."""


@contextmanager
def explained(settings: Settings) -> Iterator[None]:
    """Raise `SparkRefused` for whatever Spark raises in the block."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise SparkRefused(explain(str(error), settings)) from error


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
