"""Errors that the user can correct, by the modules that define them.

    UserError
    │ streaming.errors
    ├── JavaMissing         No Java is installed, or it is too old
    ├── JarsUnavailable     A jar cannot be fetched, or is not the one that the lock names
    ├── PortTaken           Another program listens on the port that the process needs
    ├── BrokerFailed        The embedded broker did not start
    ├── BrokerUnreachable   No broker answered in time
    ├── TopicRefused        The brokers refused to create or to show one of the coordinator's topics
    ├── TopicMismatch       A topic exists, but is not as the coordinator needs it
    ├── RightMissing        The brokers deny the process a right that it needs
    ├── NoCoordinator       The coordinator's topics do not exist
    ├── NoAnswer            The coordinator sent no response in time. The request may be in the log (a TimeoutError)
    ├── NotFound            The group, member or partition does not exist
    ├── RequestRefused      The coordinator's response to a request has an error
    ├── KeptByKafka         Kafka's own coordinator keeps the group, so that a command cannot change it
    ├── BadReset            The options of a reset of offsets contradict each other, or one is missing
    ├── NoCheckpoint        The checkpoint does not exist, or holds no finished batch
    ├── StoreUnavailable    The store of the checkpoint does not answer, or takes no writes
    ├── CheckpointMismatch  The checkpoint belongs to another query or to other settings
    ├── InUse               A coordinator runs on the checkpoint, or a command changes it
    ├── BadExport           The file is no complete export of groups, or it cannot be read or written
    │ streaming.administration.growing
    ├── NotPrepared         A coordinator cannot give its groups to the new one yet, or the new one cannot take them
    │ streaming.administration.policy_files
    ├── BadPolicies         The file contains no valid policies
    │ streaming.administration.rules
    ├── BadRules            The text contains no valid rules
    ├── RulesRefused        The brokers refused to show their rules
    │ streaming.cli.admin.request
    ├── NotARequest         The arguments of the command line are not a request
    │ streaming.cli.groups.change
    ├── Ambiguous           A name means several members
    │ streaming.cli.groups.history
    ├── BadPlace            The text does not name a partition
    │ streaming.cli.groups.resets
    ├── Uncertain           The offsets that were committed at that time are no longer certain
    │ streaming.cli.groups.show
    ├── BadPattern          The text is not a regular expression
    │ streaming.cli.lib.extras
    ├── ExtraMissing        The command needs an extra that is not installed
    │ streaming.cli.lib.options
    ├── NotConfirmed        The change was not confirmed
    │ streaming.cli.lib.times
    ├── BadTime             The text is not a time or a duration
    │ streaming.cli.services.prepare
    ├── NoArchive           The class archive could not be made. The coordinator runs without it, but starts more slowly
    │ streaming.config.oauth
    ├── TokenUnavailable    The token endpoint does not respond, or is temporarily unavailable
    ├── TokenRefused        The token endpoint refuses the client, or its response contains no token
    │ streaming.config.security
    ├── PlaintextRefused    The gateway would serve plain text on an address that other machines can reach
    │ streaming.config.settings
    ├── BadSettings         A setting is unknown, missing or out of its range
    │ streaming.config.tls
    ├── BadCertificate      A file contains no certificate or key, or the two do not match
    │ streaming.history.export
    ├── ExportFailed        The files cannot be written
    │ streaming.kafka.founding
    ├── FoundedElsewhere    Another coordinator owns the slots that have never moved
    │ streaming.kafka.reader
    ├── TopicUnread         A topic could not be read to its end within the allowed time
    │ streaming.observe.observer
    ├── NothingRead         Spark's source does not return the records of the internal topic
    ├── ObserverFailed      The observer's query ended by itself; the text names the cause
    │ streaming.observe.source
    ├── SourceLost          Records of the source may be missing, so that the checkpoint must not be used
    │ streaming.query.checkpoint.exporting
    ├── Unfinished          A batch of the checkpoint was planned and is not finished
    │ streaming.query.checkpoint.fencing
    ├── TokensUnread        The groups topic could not be read to its end
    │ streaming.query.checkpoint.outdated
    ├── CheckpointOutdated  Another checkpoint was in use after this one
    │ streaming.query.checkpoint.replaced
    ├── RequestsReplaced    Handled requests are no longer in the request topic
    │ streaming.query.checkpoint.replan
    ├── NothingPlanned      The checkpoint has no planned batch that is not finished
    │ streaming.query.coordinator
    ├── QueryFailed         The query ended by itself; the text names the cause
    │ streaming.query.lease
    ├── LeaseLost           Another driver holds the lease now. The exit code allows another start, which stands by
    │ streaming.query.spark.failures
    ├── SparkRefused        Spark could not start; the text names the cause
    │ streaming.query.spark.session
    ├── ConnectorMissing    Spark's Kafka connector is missing
    ├── MasterMismatch      Spark runs on another master than the one that was asked for
    ├── PackageInArchive    The package is in an archive, which Java cannot read, and spark-submit has not started Java
    │ streaming.query.spark.spark_config
    ├── BadSparkSettings    A setting of Spark has a value that the coordinator cannot use, or its file cannot be read
    │ streaming.query.spark.stores
    ├── StoreRefused        The checkpoint is on a store on which two drivers could write one batch
    │ streaming.sizing.costs
    ├── BadCosts            The file contains no valid costs, or it cannot be read
    │ streaming.trial.trials
    └── TrialDiffers        The recorded requests do not give the recorded rebalances once more

An error that one module raises may be defined there; an error that several modules raise is defined here. Errors in the
coordinator's responses to a consumer are raised as kafka-python's `kafka.errors`.

The text of each error is one sentence that names the fault and the remedy. The command line prints the text and
exits with the error's `exit_code`.
"""

from enum import IntEnum
from typing import Self


class Exit(IntEnum):
    """The exit code of a process. A supervisor restarts the process after `FAILED`, and not after `NEEDS_A_PERSON`."""

    DONE = 0
    FAILED = 1  # another start may succeed: brokers are unavailable, a process of Spark has ended, a port is taken
    USAGE = 2  # no such command or flag; Click's own number
    NOT_FOUND = 3  # the requested object does not exist: a script may distinguish this from a failure
    NEEDS_A_PERSON = 78  # every start would end like this, or do harm; the number is EX_CONFIG of sysexits.h
    INTERRUPTED = 130  # Ctrl-C before the process had anything to stop; the number that shells use


class UserError(Exception):
    """An error whose text is a sentence for the user: the fault and the remedy."""

    exit_code = Exit.FAILED


class JavaMissing(UserError):
    """No Java is installed, or it is too old."""

    exit_code = Exit.NEEDS_A_PERSON


class JarsUnavailable(UserError):
    """A jar cannot be fetched, or is not the one that the lock names."""


class PortTaken(UserError):
    """Another program listens on the port that the process needs."""


class BrokerFailed(UserError):
    """The embedded broker did not start."""


class BrokerUnreachable(UserError):
    """No broker answered in time."""

    @classmethod
    def at(cls, servers: object, why: object = "") -> Self:
        """Return the error for these brokers, with the reason if it is known."""
        return cls(
            f"No Kafka broker answers at {servers}{f' ({why})' if why else ''}:"
            f" start one there, or correct bootstrap_servers and the security settings."
        )


class TopicRefused(UserError):
    """The brokers refused to create or to show one of the coordinator's topics."""


class TopicMismatch(UserError):
    """A topic exists, but is not as the coordinator needs it."""

    exit_code = Exit.NEEDS_A_PERSON


class RightMissing(UserError):
    """The brokers deny the process a right that it needs."""

    exit_code = Exit.NEEDS_A_PERSON


class NoCoordinator(UserError):
    """The coordinator's topics do not exist."""

    @classmethod
    def without(cls, topic: str, servers: object) -> Self:
        """Return the error for a missing topic."""
        return cls(
            f"There is no topic {topic} at {servers}:"
            f" start the coordinator, which creates it, or correct the topic prefix."
        )


class NoAnswer(UserError, TimeoutError):
    """The coordinator sent no response in time. The request may be in the log."""


class NotFound(UserError):
    """The group, member or partition does not exist."""

    exit_code = Exit.NOT_FOUND


class RequestRefused(UserError):
    """The coordinator's response to a request has an error."""


class KeptByKafka(UserError):
    """Kafka's own coordinator keeps the group, so that a command cannot change it."""

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Return the error for a group, whose id is safe to print."""
        return cls(f"{group_id} is kept by Kafka's coordinator; observe only reads: use kafka-consumer-groups.")


class BadReset(UserError):
    """The options of a reset of offsets contradict each other, or one is missing."""

    exit_code = Exit.USAGE


class NoCheckpoint(UserError):
    """The checkpoint does not exist, or holds no finished batch."""


class StoreUnavailable(UserError):
    """The store of the checkpoint does not answer, or takes no writes."""


class CheckpointMismatch(UserError):
    """The checkpoint belongs to another query or to other settings."""

    exit_code = Exit.NEEDS_A_PERSON


class InUse(UserError):
    """A coordinator runs on the checkpoint, or a command changes it."""

    exit_code = Exit.NEEDS_A_PERSON


class BadExport(UserError):
    """The file is no complete export of groups, or it cannot be read or written."""

    exit_code = Exit.NEEDS_A_PERSON
