"""The cause of a failed query as one sentence with a remedy, found in Spark's report, and an exit code that says
whether a restart can succeed.

What the brokers have caused is only a first guess here: `outages` asks them.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from coordinator.state.codec import VERSION
from streaming.config.settings import Settings
from streaming.errors import Exit, StoreUnavailable, UserError
from streaming.kafka.topics import ALTERED, MESSAGE_BYTES_MAX

log = logging.getLogger(__name__)


def _damaged(why: str) -> str:
    return (
        f"The checkpoint {{checkpoint}} is damaged ({why}): restore it from a back-up, or start with an empty"
        " folder and another topic_prefix."
    )


_GONE = (
    "Handled requests are gone from {requests}, as after an unclean leader election or a power loss of a broker:"
    ' {what}; see "Replaced requests" in docs/checkpoints.md.'
)

REPLACED = _GONE.replace("{what}", "in partition {partition}, another record has offset {offset}")
SHORTENED = _GONE.replace("{what}", "partition {partition} ends at offset {end}, and was read to {offset}")
"""The sentences about a request topic that has lost handled requests."""

UNREAD = (
    "Unhandled requests are gone from {requests}: lengthen its retention if they have expired; to continue without"
    ' them, see "Requests that are gone" in docs/checkpoints.md.'
)

OF_THE_LOG = (
    r"LogReplaced: |offset was changed from|data may have been (?:lost|missed)|KAFKA_DATA_LOSS|INVALID_ARRAY_INDEX"
)
"""The pattern of a failure that a request topic made anew, or with more partitions, may have caused."""

OTHER_CODEC = (
    f"The checkpoint {{checkpoint}} has states of codec {{codec}}, and this version reads codec {VERSION}: start it"
    " with the version that wrote it, or export its groups with that version (`coordinator checkpoint export`), and"
    " import the file with a version that reads it."
)
"""The sentence about the checkpoint of a version whose states cannot be read here."""

_AGAIN, _PERSON = Exit.FAILED, Exit.NEEDS_A_PERSON

Causes = list[tuple[str, Exit, str]]

CONCURRENT = (
    r"CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY|SparkConcurrentModificationException"
    r"|Multiple streaming (?:jobs detected|queries are concurrently using)|NotOurBatch: "
)
"""The pattern of a failure that another driver on the checkpoint has caused. Spark has two sentences for it, and names
the condition in some of the causes only."""

KAFKA_TIMEOUT = r"kafka\.common\.errors\.TimeoutException|Cannot fetch record for offset"
"""The pattern of a wait for brokers that was in vain. Clients of other services have a TimeoutException too."""

NO_JARS = "Spark has no jars for the file system of {checkpoint} ({why}): add them with --jars or spark.jars."

UNREACHABLE = (
    r"(?P<why>Call From \S+ to \S+ failed on [\w ]+ exception|End of File Exception between local host"
    r"|Failed on local exception|No Route to Host|UnknownHostException: [\w.-]+|StandbyException"
    r"|could only be (?:written|replicated) to \d+|All datanodes [^\n]* are bad|Could not obtain block"
    r"|Unable to close file because the last block"
    r"|Unable to execute HTTP request|ConnectTimeoutException|HttpChannelEOFException|AWSApiCallTimeoutException"
    r"|AWSStatus500Exception|AWSServiceThrottledException|an earlier request of this driver came late)"
)
"""The pattern of a store that does not answer, in the words of Hadoop's clients. Nodes of Spark that do not reach each
other have other words."""

NO_ANSWER = "The checkpoint's store does not answer ({why}): check that it runs, and the address {checkpoint}."

SAFE_MODE = r"SafeModeException"
"""The pattern of a NameNode that takes no write, as for some time after each of its starts."""

NO_RIGHT = (
    r"AccessControlException|AccessDeniedException|Permission denied|Read-only file system"
    r"|not a directory|\(Not a directory\)|NotADirectoryError|ParentNotDirectoryException|Mkdirs failed"
)
"""The pattern of a folder that cannot be written. `AccessController` is a frame of nearly every stack of Hadoop."""

OF_WORKERS: Causes = [
    (r"(?:ModuleNotFoundError|python[\d.]*): (?P<why>No module named [^\n)]+)", _PERSON,
     "Python workers cannot import all packages ({why}): ship them with --py-files or --archives, or install them."),
    (r"PYTHON_VERSION_MISMATCH[^\n]*?version: (?P<why>[^,\n]+)", _PERSON,
     "Python workers have another version ({why}): let PYSPARK_PYTHON name the driver's version of Python."),
    (r"Cannot run program (?P<why>\"[^\"\n]*\")", _PERSON,
     "Spark cannot start Python workers with {why}: let PYSPARK_PYTHON name a program that each node has."),
    (r"Error from python worker:\n(?:[ \t]*(?:\S[^\n]*)?\n)*?[ \t]+(?P<why>\S[^\n]*)\n\s*PYTHONPATH was:", _AGAIN,
     "Python workers do not start ({why}): check PYSPARK_PYTHON and the packages of it; --verbose shows all of it."),
    (r"Error from python worker:\n(?:[ \t]*\n)*[ \t]*(?P<why>\S[^\n]*)", _AGAIN,
     "Python workers do not start ({why}): check PYSPARK_PYTHON and the packages of it; --verbose shows all of it."),
    ((r"(?P<why>Python worker failed to connect back|Bad data in pyspark[^\n]*|Python daemon failed to [^\n]*"
      r"|EOFException occurred while reading the port number[^\n]*)"), _AGAIN,
     "Python workers do not start ({why}): check PYSPARK_PYTHON and the packages of it; --verbose shows all of it."),
    (r"JAVA_GATEWAY_EXITED", _PERSON,
     "Spark's Java did not start: --verbose shows its messages. On YARN, HADOOP_CONF_DIR has to name a folder."),
]  # fmt: skip
"""The causes of processes that do not start, in the form of `CAUSES`."""

OF_STORES: Causes = [
    (r"Incomplete HDFS URI", _PERSON,
     "The checkpoint {checkpoint} names no NameNode: write hdfs://HOST:PORT/..., or set HADOOP_CONF_DIR."),
    (r"(?P<why>No (?:Abstract)?FileSystem (?:for scheme|configured for scheme:) ?\"?[\w.-]+)", _PERSON, NO_JARS),
    (r"ClassNotFoundException: (?:Class )?(?P<why>(?:org\.apache\.hadoop|software\.amazon)\.[\w.$]+)", _PERSON,
     NO_JARS),
    (r"NoClassDefFoundError: (?P<why>(?:org/apache/hadoop|software/amazon)/[\w/$]+)", _PERSON, NO_JARS),
    (r"(?P<why>SignatureDoesNotMatch|InvalidAccessKeyId|NoAuthWithAWSException|ExpiredToken)", _PERSON,
     "The store of the checkpoint {checkpoint} refuses the credentials ({why}): correct them in Spark's settings."),
    (r"UnknownStoreException|NoSuchBucket", _PERSON,
     "The store has no bucket for the checkpoint {checkpoint}: create it, or correct the name or the endpoint."),
    (r"AWSRedirectException", _PERSON,
     "The bucket of the checkpoint {checkpoint} is elsewhere: correct the endpoint and the region."),
    (UNREACHABLE, _AGAIN,
     NO_ANSWER),
]  # fmt: skip
"""The causes that the file system of the checkpoint has, in the form of `CAUSES`."""

CAUSES: Causes = [
    # a pattern in Spark's report, the exit code (another start can help, or only a person can), and the message to the
    # user
    (r"CorruptState: state of codec version (?P<codec>\d+)", _PERSON,
     OTHER_CODEC),
    (r"CorruptState: (?P<why>[^\n]*)", _PERSON,
     _damaged("{why}")),
    (r"ChecksumException: (?P<why>[^\n]*)", _PERSON,
     _damaged("{why}")),
    (r"STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY", _PERSON,
     "The checkpoint {checkpoint} has groups and no plan: another coordinator has begun on it, or files are gone."),
    (CONCURRENT, _PERSON,
     "Another coordinator runs on the checkpoint {checkpoint}: stop one of the two."),
    *OF_WORKERS,
    (r"LogReplaced: partition (?P<partition>\d+), offset (?P<offset>\d+)", _PERSON,
     REPLACED),
    (r"-(?P<partition>\d+)(?:'s)? offset was changed from (?P<offset>\d+) to (?P<end>\d+)", _PERSON,
     SHORTENED),
    (r"data may have been (?:lost|missed)|KAFKA_DATA_LOSS", _PERSON,
     UNREAD),
    (r"INVALID_ARRAY_INDEX", _PERSON,
     f"{{requests}} has more partitions than the groups are divided among: see {ALTERED}."),
    (r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION|Topic .* not present in metadata", _AGAIN,
     "A topic of the coordinator is missing ({topics}): start again; the start creates it, or names the next step."),
    (r"(Topic|Cluster|Group)AuthorizationException|(TOPIC|CLUSTER)_AUTHORIZATION_FAILED", _PERSON,
     "Kafka refuses the coordinator's user: let it read and write {requests}, and write {topics}."),
    (r"SaslAuthenticationException|SslAuthenticationException", _PERSON,
     "Kafka and the coordinator cannot authenticate each other: correct the settings that begin with sasl_ or ssl_."),
    (r"NotEnoughReplicas|NOT_ENOUGH_REPLICAS", _AGAIN,
     "The brokers refuse to write {topics}: too few replicas are in sync (min.insync.replicas): start all brokers."),
    (r"Expiring \d+ record\(s\) for (?P<where>\S+):", _AGAIN,
     "The brokers did not take a record for {where} within broker_wait_ms: check the leader of it, and start again."),
    (rf"{KAFKA_TIMEOUT}|BrokerNotAvailable|Connection to node .* could not be established|DisconnectException", _AGAIN,
     "No Kafka broker answers at {bootstrap_servers}: check that it runs, and start again; the coordinator continues."),
    (r"RecordTooLargeException|MESSAGE_TOO_LARGE", _PERSON,
     "A topic refuses records of this size ({topics}): set its max.message.bytes to {room}, and start again."),
    (r"No space left on device", _AGAIN,
     "The disk of the checkpoint {checkpoint} is full: free some space, and start again."),
    *OF_STORES,
    (SAFE_MODE, _AGAIN,
     "The checkpoint's store takes no writes: the NameNode of {checkpoint} is in safe mode; see its log."),
    (NO_RIGHT, _PERSON,
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
    """Raise `SparkRefused` or `StoreUnavailable` for every error that Spark raises in the block."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        log.debug("Spark's report in full: %s", in_full(error))
        raise refusal(account_of(error), settings, causes) from error


def refusal(account: str, settings: Settings, causes: Causes) -> UserError:
    """Return the error of a start that Spark refuses, from Spark's report."""
    return because(account, settings, SparkRefused, causes)


def unavailable(settings: Settings, why: str) -> StoreUnavailable:
    """Return the error of a store that does not answer."""
    return StoreUnavailable(_filled(NO_ANSWER, settings, {"why": why}))


def account_of(error: BaseException) -> str:
    """Return Spark's report of a failure without the frames of Java's stacks, and with all causes.

    The frames name classes that have nothing to do with the cause. The text of a query's failure has the message of its
    cause, and neither its class nor the causes behind it.
    """
    texts = [str(error), *(f"Caused by: {cause}" for cause in _causes(error))]
    return FRAME.sub("", "\n".join(texts))


FRAME = re.compile(r"^\s*(?:at [\w.$/@<>-]+\([^\n]*\)|\.\.\. \d+ more)[ \t]*\n?", re.MULTILINE)
"""A frame of a stack of Java."""


def is_of_the_store(account: str) -> bool:
    """Return whether the file system of the checkpoint has caused a failure, and not the files in it."""
    return any(re.search(pattern, account) for pattern, _, _ in OF_STORES)


def in_full(error: BaseException) -> str:
    """Return Spark's report of a failure with Java's stacks."""
    stack = getattr(error, "_stackTrace", None)
    cause = getattr(error, "_cause", None)
    return "\n".join([str(error), *([stack] if stack else []), *([f"Caused by: {in_full(cause)}"] if cause else [])])


def _causes(error: BaseException) -> Iterator[str]:
    """Yield what Java calls each cause of an error: its class and its message."""
    cause = getattr(error, "_cause", None)
    while cause is not None:
        origin = getattr(cause, "_origin", None)
        yield str(cause) if origin is None else str(origin.toString())
        cause = getattr(cause, "_cause", None)


def because(account: str, settings: Settings, kind: type[UserError], causes: Causes = CAUSES) -> UserError:
    """Convert Spark's report of a failure into an error of one sentence. Its exit code says whether to restart.

    For an unknown cause, the error quotes the innermost line of the report, and its exit code allows another start. It
    is a `StoreUnavailable`, and not of this kind, if the store of the checkpoint does not answer.
    """
    for pattern, exit_code, sentence in causes:
        if found := re.search(pattern, account):
            which = StoreUnavailable if pattern in (UNREACHABLE, SAFE_MODE) else kind
            error = which(_filled(sentence, settings, found.groupdict()))
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


TRACEBACK = re.compile(
    r"(?:^([ \t]+))?Traceback \(most recent call last\):\n(?:(?(1)\1)[ \t][^\n]*\n)+(?(1)\1)(?P<error>\S[^\n]*)",
    re.MULTILINE,
)
"""A Python traceback, which may be indented as a whole; the group `error` is its last line."""


def innermost(account: str) -> str:
    """Return the line of Spark's report that names the first cause: the last Python error, if the report contains
    one."""
    causes = [found["error"] for found in TRACEBACK.finditer(account)]
    causes = causes or [_sentence(account[at.end() :]) for at in re.finditer(r"^Caused by: ", account, re.MULTILINE)]
    return causes[-1] if causes else _sentence(CALLED.sub("", account.strip()))


LINES_MAX = 4
"""The lines of a report that one sentence quotes."""


def _sentence(report: str) -> str:
    """Return the first line of a report. The reason of a line that ends with a colon is in the next one."""
    found: list[str] = []
    for line in filter(None, map(str.strip, report.splitlines())):
        found.append(line)
        if not line.endswith(":") or len(found) == LINES_MAX:
            break
    return " ".join(found)


CALLED = re.compile(r"\AAn error occurred while calling [^\n]*\n: ")
"""The words of py4j before an error of Java."""
