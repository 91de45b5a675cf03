"""What a `GroupConsumer` may be told: kafka-python's names with kafka-python's defaults, and one name of our own.

group names    how to be a member; ours to act on
reading names  how to fetch records; KafkaConsumer's
way names      how to reach the brokers; everybody's
"""

from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConfigurationError
from msgspec import Struct

GROUP_DEFAULTS: dict[str, Any] = {
    "topic_prefix": "coordinator",
    "group_id": None,
    "client_id": KafkaConsumer.DEFAULT_CONFIG["client_id"],
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 300_000,
    "max_poll_records": 500,
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "partition_assignment_strategy": (RangePartitionAssignor,),
    "request_timeout_ms": KafkaConsumer.DEFAULT_CONFIG["request_timeout_ms"],
    "retry_backoff_ms": KafkaConsumer.DEFAULT_CONFIG["retry_backoff_ms"],
    "consumer_timeout_ms": KafkaConsumer.DEFAULT_CONFIG["consumer_timeout_ms"],
}

NOT_SERVED = {
    "group_instance_id": "static members are not served yet",
    "default_offset_commit_callback": "asynchronous commits are not served yet",
}

_NOT_THE_WAY = {
    "allow_auto_create_topics", "client_id", "metric_reporters", "metrics_enabled", "metrics_num_samples",
    "metrics_sample_window_ms",
}  # fmt: skip
WAY_NAMES = (set(KafkaConsumer.DEFAULT_CONFIG) & set(KafkaProducer.DEFAULT_CONFIG)) - _NOT_THE_WAY


class ConsumerConfig(Struct, frozen=True):
    """A checked configuration.

    Args:
        group: Every group name with its value.
        reading: What was given that KafkaConsumer is to know; never a group id.
        way: What was given that says how to reach the brokers.
        assignors: The assignors to offer, the preferred one first.
    """

    group: dict[str, Any]
    reading: dict[str, Any]
    way: dict[str, Any]
    assignors: tuple[Any, ...]


def configure(given: Mapping[str, Any]) -> ConsumerConfig:
    """Check what was given and fill in the rest.

    Raises:
        KafkaConfigurationError: names what is unknown, missing, not served or out of its range.
    """
    if unknown := sorted(set(given) - set(KafkaConsumer.DEFAULT_CONFIG) - set(GROUP_DEFAULTS)):
        raise KafkaConfigurationError(f"Unrecognized configs: {', '.join(unknown)}")
    for name, why in NOT_SERVED.items():
        if given.get(name) is not None:
            raise KafkaConfigurationError(f"{name}: {why}")
    group = {name: given.get(name, default) for name, default in GROUP_DEFAULTS.items()}
    _check_group(group)
    way = {"bootstrap_servers": "localhost", **{name: given[name] for name in WAY_NAMES & set(given)}}
    reading = {name: value for name, value in given.items() if name in KafkaConsumer.DEFAULT_CONFIG}
    reading |= {"group_id": None, "enable_auto_commit": False}  # Kafka's own coordinator is never to hear of us
    reading.pop("partition_assignment_strategy", None)
    return ConsumerConfig(group, reading, way, _assignors(group["partition_assignment_strategy"]))


def _check_group(group: Mapping[str, Any]) -> None:
    if not group["group_id"]:
        raise KafkaConfigurationError("group_id is needed: the name of the group to join")
    if group["heartbeat_interval_ms"] >= group["session_timeout_ms"]:
        raise KafkaConfigurationError(
            f"heartbeat_interval_ms ({group['heartbeat_interval_ms']}) must be lower than session_timeout_ms"
            f" ({group['session_timeout_ms']}), and is best a third of it"
        )


def _assignors(strategy: Any) -> tuple[Any, ...]:
    assignors = tuple(each() if isinstance(each, type) else each for each in strategy)
    if not assignors:
        raise KafkaConfigurationError("partition_assignment_strategy: at least one assignor is needed")
    for assignor in assignors:
        if RebalanceProtocol.EAGER not in assignor.supported_protocols():
            raise KafkaConfigurationError(
                f"partition_assignment_strategy: {assignor.name} is cooperative, which is not served yet"
            )
    return assignors
