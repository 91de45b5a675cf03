"""The cause of a failed query as one sentence with a remedy, found in Spark's report, and an exit code that says
whether a restart can succeed."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.kafka.topics import MESSAGE_BYTES_MAX


def _damaged(why: str) -> str:
    return (
        f"The checkpoint {{checkpoint}} is damaged ({why}): restore it from a back-up, or start with an empty folder."
    )


_AGAIN, _PERSON = Exit.FAILED, Exit.NEEDS_A_PERSON

Causes = list[tuple[str, Exit, str]]

CONCURRENT = r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|NotOurBatch: "
"""The pattern of a failure that another driver on the checkpoint has caused."""

CAUSES: Causes = [
    # a pattern in Spark's report, the exit code (another start can help, or only a person can), and the message to the
    # user
    (r"CorruptState: (?P<why>[^\n]*)", _PERSON,
     _damaged("{why}")),
    (CONCURRENT, _PERSON,
     "Another coordinator runs on the checkpoint {checkpoint}: stop one of the two."),
    (r"data may have been (?:lost|missed)|KAFKA_DATA_LOSS", _PERSON,
     "Unhandled requests are gone from {requests}: lengthen its retention; to skip them, empty {checkpoint}."),
    (r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION|Topic .* not present in metadata", _AGAIN,
     "A topic of the coordinator is missing ({topics}): start again; the start creates it, or names the next step."),
    (r"(Topic|Cluster|Group)AuthorizationException|(TOPIC|CLUSTER)_AUTHORIZATION_FAILED", _PERSON,
     "Kafka refuses the coordinator's user: let it read and write {requests}, and write {topics}."),
    (r"SaslAuthenticationException|SslAuthenticationException|SSLHandshakeException", _PERSON,
     "Kafka and the coordinator cannot authenticate each other: correct the settings that begin with sasl_ or ssl_."),
    (r"Expiring \d+ record\(s\) for (?P<where>\S+)-\d+:", _AGAIN,
     "No Kafka broker answers at {bootstrap_servers}, or topic {where} is missing: check both, and start again."),
    (r"TimeoutException|BrokerNotAvailable|Connection to node .* could not be established|DisconnectException", _AGAIN,
     "No Kafka broker answers at {bootstrap_servers}: check that it runs, and start again; the coordinator continues."),
    (r"RecordTooLargeException|MESSAGE_TOO_LARGE", _PERSON,
     "A topic refuses records of this size ({topics}): set its max.message.bytes to {room}, and start again."),
    (r"No space left on device", _AGAIN,
     "The disk of the checkpoint {checkpoint} is full: free some space, and start again."),
    (r"Permission denied|AccessControl|Read-only file system|[Nn]ot a directory|NotDirectory|Mkdirs failed", _PERSON,
     "The checkpoint {checkpoint} cannot be written: give the coordinator's user this right, and start again."),
    (r"MALFORMED_LOG_FILE|Incomplete log file|MISSING_METADATA_FILE|Expected e\.g\. |assertion failed", _PERSON,
     _damaged("Spark's notes of its batches are missing or cannot be read")),
    (r"Unexpected (character|end-of-input)|Unrecognized token|Invalid UTF-8|Illegal (unquoted )?character", _PERSON,
     _damaged("Spark's notes of its batches are not JSON")),
    (r"CANNOT_WRITE_STATE_STORE", _AGAIN,
     "The checkpoint {checkpoint} cannot be written: free some space, check the folder's rights, and start again."),
    (r"CANNOT_LOAD_STATE_STORE", _PERSON,
     _damaged("the groups' state is missing or cannot be read")),
    (r"cannot grow beyond 2GB", _PERSON,
     "A batch has 2 GiB of requests of a shard: run `coordinator checkpoint replan`, lower max_requests_per_batch."),
    (r"Python worker exited unexpectedly|ExecutorLostFailure", _AGAIN,
     "A process of Spark ended unexpectedly: check that memory is free, and start again; the coordinator continues."),
]  # fmt: skip


class SparkRefused(UserError):
    """Spark could not start; the text names the cause."""


@contextmanager
def explained(settings: Settings, causes: Causes = CAUSES) -> Iterator[None]:
    """Raise `SparkRefused` for every error that Spark raises in the block."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise because(str(error), settings, SparkRefused, causes) from error


def because(account: str, settings: Settings, kind: type[UserError], causes: Causes = CAUSES) -> UserError:
    """Convert Spark's report of a failure into an error of one sentence. Its exit code says whether to restart.

    For an unknown cause, the error quotes the innermost line of the report, and its exit code allows another start.
    """
    for pattern, exit_code, sentence in causes:
        if found := re.search(pattern, account):
            error = kind(_filled(sentence, settings, found.groupdict()))
            error.exit_code = exit_code
            return error
    return kind(f"The query failed: {innermost(account)}")


def _filled(sentence: str, settings: Settings, found: Mapping[str, str]) -> str:
    return sentence.format(
        checkpoint=settings.checkpoint,
        prefix=settings.topic_prefix,
        requests=settings.requests_topic,
        topics=", ".join((settings.replies_topic, settings.groups_topic, settings.events_topic)),
        bootstrap_servers=settings.bootstrap_servers,
        room=MESSAGE_BYTES_MAX,
        **{"why": "", **found},
    )


TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+(\S[^\n]*)")
"""A Python traceback; the group is its last line, the error."""


def innermost(account: str) -> str:
    """Return the line of Spark's report that names the first cause: the last Python error, if the report contains
    one."""
    causes = TRACEBACK.findall(account) or re.findall(r"^Caused by: (.*)$", account, re.MULTILINE)
    return str(causes[-1] if causes else account.strip().partition("\n")[0])
