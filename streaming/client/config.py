"""The settings of members: kafka-python's names with kafka-python's defaults, and few names of our own.

group names    settings of the member; this library uses them
reading names  settings of fetching; KafkaConsumer uses them
way names      settings of the connection to the brokers; all clients use them
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConfigurationError
from msgspec import Struct

from coordinator.assignors.server import SERVER_ASSIGNORS
from coordinator.base.limits import GROUP_ID_CHARS_MAX, NAME_CHARS_MAX
from coordinator.member.consumer_config import ConsumerProtocolConfig
from coordinator.member.requests import MemberConfig
from streaming.client.plans import SETTING, resolve
from streaming.client.strategies import Strategy
from streaming.client.transport import ROUTES_MAX, Transport
from streaming.moments import monotonic_ms, unix_ms
from streaming.wire.signing import Signer, Signing

_KAFKAS: Mapping[str, Any] = KafkaConsumer.DEFAULT_CONFIG

MEMBER_DEFAULTS: dict[str, Any] = {
    "topic_prefix": "coordinator",
    "peers": (),
    "group_id": None,
    "client_id": _KAFKAS["client_id"],
    "group_instance_id": None,
    "group_protocol": "classic",
    "group_remote_assignor": None,
    "metadata_refresh_ms": 5_000,
    "principal": None,
    "access_key_file": None,
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "max_poll_interval_ms": 300_000,
    "request_timeout_ms": _KAFKAS["request_timeout_ms"],
    "retry_backoff_ms": _KAFKAS["retry_backoff_ms"],
    "retry_backoff_max_ms": 1_000,
    SETTING: ("cooperative-sticky",),
}
"""The settings of a `GroupMember`."""

CONSUMER_DEFAULTS: dict[str, Any] = {
    **MEMBER_DEFAULTS,
    SETTING: ("range", "cooperative-sticky"),
    "max_poll_records": 500,
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5_000,
    "default_offset_commit_callback": None,
    "consumer_timeout_ms": _KAFKAS["consumer_timeout_ms"],
    "client_rack": _KAFKAS["client_rack"],
    "exclude_internal_topics": _KAFKAS["exclude_internal_topics"],
}
"""The settings of a `GroupConsumer`, besides those of KafkaConsumer alone."""

_NOT_CONNECTION_NAMES = {
    "allow_auto_create_topics", "client_id", "metric_reporters", "metrics_enabled", "metrics_num_samples",
    "metrics_sample_window_ms",
}  # fmt: skip
CONNECTION_NAMES = (set(KafkaConsumer.DEFAULT_CONFIG) & set(KafkaProducer.DEFAULT_CONFIG)) - _NOT_CONNECTION_NAMES

_COUNTS = {
    # setting                            from    to
    "session_timeout_ms":               (1,      2**31 - 1),
    "heartbeat_interval_ms":            (1,      2**31 - 1),
    "max_poll_interval_ms":             (1,      2**31 - 1),
    "request_timeout_ms":               (1,      2**31 - 1),
    "retry_backoff_ms":                 (1,      2**31 - 1),
    "retry_backoff_max_ms":             (1,      2**31 - 1),
    "auto_commit_interval_ms":          (0,      2**31 - 1),
    "metadata_refresh_ms":              (100,    3_600_000),
    "max_poll_records":                 (1,      2**31 - 1),
}  # fmt: skip

_CHOICES = {
    # kafka-python does not check these, or only once it has connected
    "auto_offset_reset": ("earliest", "latest", "none"),
    "isolation_level":   ("read_uncommitted", "read_committed"),
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "group_protocol":    ("classic", "consumer"),
    "group_remote_assignor": (None, *SERVER_ASSIGNORS),
}  # fmt: skip

_FOR_THE_OTHER_PROTOCOL = {
    # group_protocol  settings that have no effect with it, and are refused
    "classic":       ("group_remote_assignor", "metadata_refresh_ms"),
    "consumer":      ("session_timeout_ms", "heartbeat_interval_ms", SETTING),
}  # fmt: skip

_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
_INSTANCE_ID = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")  # a topic's name, by Kafka's rules


class ClientConfig(Struct, frozen=True):
    """A checked configuration.

    Args:
        group: Every group name with its value.
        connection: The given settings of the connection to the brokers.
        strategies: The assignors to offer, the preferred one first.
        reading: The given settings of KafkaConsumer; never a group id.
    """

    group: dict[str, Any]
    connection: dict[str, Any]
    strategies: tuple[Strategy, ...]
    reading: dict[str, Any] = {}

    @property
    def uses_consumer_protocol(self) -> bool:
        """True for `group_protocol="consumer"` (KIP-848)."""
        return bool(self.group["group_protocol"] == "consumer")

    def member(self, transport: Transport, protocol_type: str) -> MemberConfig:
        """Return the configuration of a member of the classic protocol that reads its responses from a transport."""
        return MemberConfig(**self._common(transport), protocol_type=protocol_type)

    def consumer_protocol_member(self, transport: Transport) -> ConsumerProtocolConfig:
        """Return the configuration of a member of the consumer protocol. Each call makes another member id."""
        return ConsumerProtocolConfig(
            **self._common(transport),
            member_id=new_member_id(),
            rack_id=self.group.get("client_rack") or None,
            server_assignor=self.group["group_remote_assignor"],
        )

    def _common(self, transport: Transport) -> dict[str, Any]:
        names = set(MemberConfig.__struct_fields__) & set(self.group)
        values = {name: self.group[name] for name in names}
        return {
            **values,
            "reply_to": transport.inbox,
            "client_host": transport.client_host(),
            "moments_ms": unix_ms() - monotonic_ms(),
        }

    def signer_at(self) -> Callable[[str], Signer]:
        """Return the function that returns the signer for the coordinator with a prefix.

        Without an `access_key_file` it does not sign.

        Raises:
            KafkaConfigurationError: The file has no key to sign with.
        """
        if (file := self.group["access_key_file"]) is None:
            return lambda _: Signer(None)
        from streaming.config.principals import keys_in  # it loads pydantic, which takes 0.1 s

        try:
            keys = tuple(key.get_secret_value().encode() for key in keys_in(file))
        except ValueError as error:
            raise KafkaConfigurationError(f"access_key_file: {error}") from None
        return lambda prefix: Signer(Signing(keys, f"{prefix}.requests"), self.group["principal"])


def new_member_id() -> str:
    """Return a random UUID as Kafka writes it: URL-safe base64 without padding, and without a "-" in front."""
    while (text := urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text


def configure_consumer(given: Mapping[str, Any]) -> ClientConfig:
    """Check the settings of a consumer and fill in the defaults.

    Raises:
        KafkaConfigurationError: names the setting that is unknown, missing or out of its range.
    """
    config = _configure(given, CONSUMER_DEFAULTS, also_known=set(_KAFKAS))
    reading = {name: value for name, value in given.items() if name in _KAFKAS and name != SETTING}
    nobody = {"group_id": None, "group_instance_id": None, "enable_auto_commit": False}
    reading |= nobody  # Kafka's own coordinator must never get a request of this consumer
    return ClientConfig(config.group, config.connection, config.strategies, reading)


def configure_member(given: Mapping[str, Any]) -> ClientConfig:
    """Check the settings of a member that shares resources and fill in the defaults.

    Raises:
        KafkaConfigurationError: names the setting that is unknown, missing or out of its range.
    """
    evenly = {"group_remote_assignor": "uniform"} if given.get("group_protocol") == "consumer" else {}
    return _configure({**evenly, **given}, MEMBER_DEFAULTS, also_known=CONNECTION_NAMES)


def _configure(given: Mapping[str, Any], defaults: Mapping[str, Any], also_known: set[str]) -> ClientConfig:
    if unknown := sorted(set(given) - set(defaults) - also_known):
        raise KafkaConfigurationError(f"Unrecognized configs: {', '.join(unknown)}")
    for name, choices in _CHOICES.items():
        if given.get(name, choices[0]) not in choices:
            raise KafkaConfigurationError(f"{name} ({given[name]!r}) must be one of {', '.join(map(str, choices))}")
    protocol = given.get("group_protocol", "classic")
    if useless := [name for name in _FOR_THE_OTHER_PROTOCOL[protocol] if name in given]:
        raise KafkaConfigurationError(f"{', '.join(useless)} cannot be set when group_protocol={protocol}")
    group = {name: given.get(name, default) for name, default in defaults.items()}
    group["peers"] = _checked_peers(group)
    _check(group)
    connection = {"bootstrap_servers": "localhost", **{name: given[name] for name in CONNECTION_NAMES & set(given)}}
    return ClientConfig(group, connection, resolve(group[SETTING]))


def _check(group: Mapping[str, Any]) -> None:
    _check_name(group, "group_id", GROUP_ID_CHARS_MAX, "the name of the group to join")
    _check_name(group, "client_id", NAME_CHARS_MAX, "a name for this client, which its member id begins with")
    for name in _COUNTS.keys() & group.keys():
        low, high = _COUNTS[name]
        if type(group[name]) is not int or not low <= group[name] <= high:
            raise KafkaConfigurationError(f"{name} ({group[name]!r}) must be a whole number from {low} to {high}")
    instance_id = group["group_instance_id"]
    if instance_id is not None and not (isinstance(instance_id, str) and _INSTANCE_ID.fullmatch(instance_id)):
        raise KafkaConfigurationError(
            f"group_instance_id ({instance_id!r}) must be 1 to 249 of A-Z, a-z, 0-9, '.', '_' and '-', not '.' or '..'"
        )
    if group["heartbeat_interval_ms"] >= group["session_timeout_ms"]:
        raise KafkaConfigurationError(
            f"heartbeat_interval_ms ({group['heartbeat_interval_ms']}) must be lower than session_timeout_ms"
            f" ({group['session_timeout_ms']}), and is best a third of it"
        )


def _checked_peers(group: Mapping[str, Any]) -> tuple[str, ...]:
    peers = group["peers"]
    if not isinstance(peers, list | tuple) or not all(isinstance(p, str) and _PREFIX.fullmatch(p) for p in peers):
        raise KafkaConfigurationError(
            f"peers ({peers!r}) must be a list of topic prefixes: A-Z, a-z, 0-9, '.', '_', '-'"
        )
    if len(peers) > ROUTES_MAX or len({*peers, group["topic_prefix"]}) <= len(peers):
        raise KafkaConfigurationError(
            f"peers ({peers!r}) must be {ROUTES_MAX} different prefixes at most, and not topic_prefix itself"
        )
    return tuple(peers)


def _check_name(group: Mapping[str, Any], name: str, chars_max: int, what: str) -> None:
    value = group[name]
    if not value or not isinstance(value, str) or len(value) > chars_max:
        raise KafkaConfigurationError(f"{name} is needed: {what}, {chars_max} characters at most")
