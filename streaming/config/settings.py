"""All settings in one object: from flags, `COORDINATOR_*` variables or a TOML file, in that order.

Settings that Kafka's brokers also have keep their Kafka names here.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from coordinator.base import limits
from coordinator.base.config import MINUTE_MS, Config
from streaming.config import timeouts
from streaming.config.peers import NO_PEERS, PeerAccess
from streaming.config.principals import AccessControl
from streaming.config.security import BrokerAccess, GatewayAccess
from streaming.config.values import Host, is_any_address
from streaming.errors import Exit, UserError
from streaming.logs import FORMAT_VARIABLE
from streaming.wire.peering import Peering
from streaming.wire.signing import Signer, Signing

CONFIG_FILE_VARIABLE = "COORDINATOR_CONFIG"

_LINGER_MS = 20  # a batch ends with a flush, which does not wait for linger

SINK_BATCH_BYTES = 32_768
"""The maximum size of the query's write to a partition, unless a single record is larger. A topic that accepts less is
not supported: Kafka's producers before 4.2 split a batch that the broker refuses as too large, report it as written,
and lose it if it cannot be split far enough (KAFKA-19479, KAFKA-8350)."""

Milliseconds = Annotated[int, Field(ge=0, le=2**31 - 1)]
Minutes = Annotated[int, Field(ge=1, le=2**31 - 1)]


class BadSettings(UserError):
    """A setting is unknown, missing or out of its range."""

    exit_code = Exit.NEEDS_A_PERSON


class Settings(GatewayAccess, PeerAccess, AccessControl, BrokerAccess):
    """The settings of the service, its topics and its groups. Times have the unit at the end of the name."""

    model_config = SettingsConfigDict(env_prefix="COORDINATOR_", extra="forbid", frozen=True)

    # Kafka; the settings of the connection are in `BrokerAccess`
    topic_prefix: str = Field(
        "coordinator", pattern=r"^[a-zA-Z0-9._-]{1,200}$", description="Topics are named PREFIX.requests and so on."
    )
    request_partitions: int = Field(
        16, ge=1, le=limits.PARTITIONS_MAX, description="Shards; fixed for the life of the topic."
    )
    reply_partitions: int = Field(16, ge=1, le=1000, description="Partitions of the reply topic.")
    replication_factor: int = Field(
        3, ge=1, le=32, description="Copies of each created topic; if not set, no more than there are brokers."
    )
    broker_wait_ms: int = Field(
        90_000, ge=3_000, le=3_600_000, description="The query's longest wait for brokers that do not answer."
    )

    # monitoring
    health_host: Host = Field("127.0.0.1", description="The address of the health checks.")
    health_port: int | None = Field(
        None, ge=0, le=65_535, description="Port of /healthz, /readyz and /metrics; none if not set."
    )

    # the dashboard
    dashboard_host: Host = Field("127.0.0.1", description="The address of the dashboard.")
    dashboard_port: int = Field(9494, ge=0, le=65_535, description="The dashboard's port; with 0 a free one.")
    dashboard_names: str = Field("", description="The dashboard's names at a proxy on this machine, comma-separated.")
    dashboard_metrics_groups_max: int = Field(
        1_000, ge=0, le=1_000_000, description="The number of groups with their own figures at /metrics."
    )
    dashboard_metrics_of_partitions: bool = Field(False, description="Add figures of single partitions.")

    # Spark
    master: str | None = Field(
        None, description="Spark master; that of spark-submit or spark-defaults.conf, or else local[2]."
    )
    shuffle_partitions: int = Field(
        2, ge=1, le=1000, description="Parallel tasks that serve shards; about the cores. Fixed for a checkpoint."
    )
    checkpoint: str = Field("checkpoints/default", min_length=1, description="Folder of the query's state.")
    store_endpoint: str = Field(
        "",
        pattern=r"^(https?://\S+)?$",
        description="The S3 server of a checkpoint on s3a:; Amazon's own if empty.",
    )
    store_region: str = Field("", pattern=r"^[a-z0-9-]*$", description="Region of that server; found out if empty.")
    checkpoint_wait_ms: int = Field(
        600_000,
        ge=3_000,
        le=3_600_000,
        description="The query's longest wait for the store of the checkpoint, while it does not answer.",
    )
    checkpoint_may_be_empty: bool = Field(
        False, description="Start over with an empty checkpoint although topics have records; for one start."
    )
    checkpoint_may_be_outdated: bool = Field(
        False, description="Start although events have a later time, or handled requests were replaced; for one start."
    )
    checkpoint_synced: bool = Field(
        True, description="Sync a batch's plan and state to a local disk before its output; off for faster batches."
    )
    state_store: Literal["hdfs", "rocksdb"] = Field(
        "hdfs", description="Spark's state store: in memory, or RocksDB. Fixed for a checkpoint."
    )
    stand_by: bool = Field(
        False, description="Share the checkpoint with other drivers by a lease: one serves, the others stand by."
    )
    max_requests_per_batch: int = Field(
        500_000, ge=1, description="The maximum number of requests of one batch; the others wait for the next batch."
    )

    # the observer of Kafka's own groups
    observe_prefix: str = Field(
        "observed", pattern=r"^[a-zA-Z0-9._-]{1,200}$", description="Topics of the observer: PREFIX.groups and so on."
    )
    observe_checkpoint: str = Field("checkpoints/observed", min_length=1, description="Folder of the observer's state.")
    observe_every_ms: int = Field(2_000, ge=100, le=60_000, description="The time between two batches of the observer.")
    observe_records_per_batch: int = Field(
        500_000, ge=1_000, le=100_000_000, description="The maximum number of records of one batch of the observer."
    )

    # the gateway; the settings of its certificates are in `GatewayAccess`
    gateway_host: Host = Field("127.0.0.1", description="The address on which the gateway listens.")
    gateway_port: int = Field(
        9192,
        ge=0,
        le=65_535,
        description="Clients' bootstrap port. Broker N is at this plus 1 plus N; with 0 all are free ports.",
    )
    gateway_advertised_host: Host | None = Field(
        None, description="The host to which clients connect; gateway_host if not set."
    )
    gateway_metrics_port: int | None = Field(
        None, ge=0, le=65_535, description="The port of the gateway's figures, at gateway_host; none if not set."
    )
    gateway_linger_ms: Milliseconds = Field(5, description="The wait of a request for others in the same write.")
    gateway_heartbeat_hold_ms: Milliseconds = Field(
        2_250, description="The longest wait of a heartbeat's response for a rebalance; 0 for no wait."
    )
    gateway_heartbeat_tick_ms: int = Field(
        1_000,
        ge=0,
        le=2_000,
        description="A gateway sends heartbeats at multiples of this time, together; 0 for each at once.",
    )
    gateway_consumer_heartbeat_hold_ms: Milliseconds = Field(
        4_000,
        description="The longest wait of the response to a heartbeat of the consumer protocol for news; 0 for no wait.",
    )
    gateway_hold_ms: Milliseconds = Field(
        5_000, description="The wait for an unavailable coordinator before a client gets the error."
    )
    gateway_connections_max: int = Field(10_000, ge=1, description="Open connections of clients.")
    gateway_connections_max_idle_ms: Milliseconds = Field(
        600_000, description="The time after which a connection without a request is closed."
    )

    # groups, by the names of Kafka's broker settings
    group_initial_rebalance_delay_ms: Milliseconds = 3_000
    group_min_session_timeout_ms: Milliseconds = 6_000
    group_max_session_timeout_ms: Milliseconds = 1_800_000
    group_max_size: int = Field(10_000, ge=1, le=limits.ASSIGNMENTS_MAX)
    metadata_refresh_ms: int = Field(
        5_000, ge=100, le=3_600_000, description="The time between two looks at the topics of consumer groups."
    )
    group_consumer_session_timeout_ms: int = Field(45_000, ge=1_000, le=limits.SESSION_TIMEOUT_MS_MAX)
    group_consumer_heartbeat_interval_ms: int = Field(5_000, ge=500, le=limits.SESSION_TIMEOUT_MS_MAX)
    group_consumer_assignment_interval_ms: int = Field(1_000, ge=0, le=15_000)
    group_consumer_max_size: int = Field(10_000, ge=1, le=limits.ASSIGNMENTS_MAX)
    group_consumer_assignors: tuple[Literal["uniform", "range"], ...] = Field(("uniform", "range"), min_length=1)
    group_consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = "bidirectional"
    offsets_retention_minutes: Minutes = 10_080
    offsets_retention_minutes_by_group: dict[str, Minutes] = Field(
        {}, description="Exceptions, by group id; in the environment a JSON object."
    )
    offset_metadata_max_bytes: int = Field(4_096, ge=0, le=limits.COMMIT_METADATA_CHARS_MAX)

    fencing_token_floor: int = Field(
        0, ge=0, le=limits.FENCING_TOKEN_FLOOR_MAX, description="The minimum of fencing tokens: see the runbook."
    )

    # time
    clock_slack_ms: Milliseconds = Field(1_000, description="The largest difference of brokers' and driver's clocks.")
    late_notice_ms: Milliseconds = Field(
        5_000, description="A deadline that is noticed later than this is extended once."
    )

    @model_validator(mode="after")
    def _session_bounds_in_order(self) -> Self:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ValueError("group_min_session_timeout_ms is above group_max_session_timeout_ms")
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise ValueError("group_consumer_heartbeat_interval_ms is not below group_consumer_session_timeout_ms")
        return self

    @model_validator(mode="after")
    def _is_no_peer_of_itself(self) -> Self:
        if self.topic_prefix in self.peers:
            raise ValueError("topic_prefix is one of the peers")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get(CONFIG_FILE_VARIABLE)
        toml = (TomlConfigSettingsSource(settings_cls, Path(file)),) if file else ()
        return (init_settings, env_settings, *toml)

    @classmethod
    def load(cls, **flags: Any) -> "Settings":
        """Load the settings. Flags that are None count as not given.

        Raises:
            BadSettings: A setting, a variable or a file is wrong; the text names it in one sentence.
        """
        _refuse_unknown_variables(cls)
        file = os.environ.get(CONFIG_FILE_VARIABLE)
        if file and not Path(file).is_file():
            raise BadSettings(f"{CONFIG_FILE_VARIABLE} names {file}, which is not a file.")
        try:
            return cls(**{name: value for name, value in flags.items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(str(part) for part in first["loc"])
            problem = "this setting does not exist" if first["type"] == "extra_forbidden" else first["msg"]
            raise BadSettings(f"{name}: {problem}." if name else f"{problem}.") from None
        except SettingsError as error:
            raise BadSettings(f"{error}: a JSON object is required.") from None
        except tomllib.TOMLDecodeError as error:
            raise BadSettings(f"{file} is not TOML: {error}.") from None

    @property
    def requests_topic(self) -> str:
        return f"{self.topic_prefix}.requests"

    @property
    def replies_topic(self) -> str:
        return f"{self.topic_prefix}.replies"

    @property
    def groups_topic(self) -> str:
        return f"{self.topic_prefix}.groups"

    @property
    def events_topic(self) -> str:
        return f"{self.topic_prefix}.events"

    @property
    def transactions_topic(self) -> str:
        return f"{self.topic_prefix}.transactions"

    @property
    def lease_topic(self) -> str:
        """The topic that drivers have which stand by for each other."""
        return f"{self.topic_prefix}.lease"

    @property
    def directory_topic(self) -> str:
        """The topic that coordinators have which share the groups; it has the prefix of none of them."""
        return f"{self.directory}.directory"

    @property
    def topics_topic(self) -> str:
        """The topic with the names of topic ids, which only the observer has."""
        return f"{self.topic_prefix}.topics"

    def observing(self) -> "Settings":
        """Return the settings of the observer: its own topics and its own checkpoint.

        Commands that read what it writes have its prefix as `topic_prefix`, so this is no error of theirs.

        Raises:
            BadSettings: The observer would share its topics or its checkpoint with the coordinator.
        """
        if self.observe_prefix == self.topic_prefix:
            raise BadSettings("observe_prefix is topic_prefix: the observer needs topics of its own.")
        if self.observe_checkpoint == self.checkpoint:
            raise BadSettings("observe_checkpoint is checkpoint: the observer needs a folder of its own.")
        return self.model_copy(update={"topic_prefix": self.observe_prefix, "checkpoint": self.observe_checkpoint})

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of all topics of the coordinator."""
        own = self.requests_topic, self.replies_topic, self.groups_topic, self.events_topic
        return *own, self.transactions_topic

    def gateway_client_host(self) -> str:
        """Return the host to which the gateway sends its clients.

        Raises:
            BadSettings: Clients could not connect to it.
        """
        host = self.gateway_advertised_host or self.gateway_host
        if is_any_address(host):
            raise BadSettings(
                f"Clients of the gateway cannot connect to {host}: set gateway_advertised_host to its name or address."
            )
        return host

    @property
    def is_relayed_as_gateway(self) -> bool:
        """Whether the brokers take relayed requests for the gateway's own, because they know the gateway by its
        certificate."""
        return self.security_protocol == "SSL" and self.ssl_certfile is not None

    def signing(self) -> Signing | None:
        """Return the signing of requests to this coordinator; None without a key."""
        return self.signing_for(self.requests_topic)

    def signer_at(self, prefix: str) -> Signer:
        """Return the signer with the principal of our own commands, for requests to the coordinator with a prefix."""
        return Signer(self.signing_for(f"{prefix}.requests"), self.asking_as(self.sasl_username))

    def peering(self) -> Peering | None:
        """Return the key and the topics of the other coordinators; None without peers."""
        return self.peering_at(self.topic_prefix)

    def secrets(self) -> frozenset[str]:
        """Return the texts of all passwords and keys, so that they can be removed from an output. Never display
        them."""
        fields = (getattr(self, name) for name in type(self).model_fields)
        kept = (*fields, *self._secrets.values(), *self._access_keys, self._peer_key)
        return frozenset(each.get_secret_value() for each in kept if isinstance(each, SecretStr))

    def group_config(self, fencing_token_floor: int = 0, peer_partitions: Mapping[str, int] = NO_PEERS) -> Config:
        """Return the settings that the core needs.

        Args:
            fencing_token_floor: The checkpoint's own floor. The higher one of it and the setting counts.
            peer_partitions: The number of request partitions of each peer, by its prefix.
        """
        return Config(
            fencing_token_floor=max(fencing_token_floor, self.fencing_token_floor),
            group_initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_min_session_timeout_ms=self.group_min_session_timeout_ms,
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            group_max_size=self.group_max_size,
            group_consumer_session_timeout_ms=self.group_consumer_session_timeout_ms,
            group_consumer_heartbeat_interval_ms=self.group_consumer_heartbeat_interval_ms,
            group_consumer_assignment_interval_ms=self.group_consumer_assignment_interval_ms,
            group_consumer_max_size=self.group_consumer_max_size,
            group_consumer_assignors=self.group_consumer_assignors,
            group_consumer_migration_policy=self.group_consumer_migration_policy,
            prefix=self.topic_prefix,
            peers=self.peers,
            peer_partitions=dict(peer_partitions),
            slots=self.slots,
            super_users=self.super_users,
            access=self.access,
            offsets_retention_ms=self.offsets_retention_minutes * MINUTE_MS,
            offsets_retention_by_group_ms={
                group_id: minutes * MINUTE_MS for group_id, minutes in self.offsets_retention_minutes_by_group.items()
            },
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            clock_slack_ms=self.clock_slack_ms,
            late_notice_ms=self.late_notice_ms,
        )

    def kafka_source_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source: the connection to the brokers, and how long Spark waits for
        them."""
        ends_ms = min(timeouts.SOURCE_TIMEOUT_MS, self._try_ms)
        return {
            **self._kafka_options(),
            "kafka.default.api.timeout.ms": str(ends_ms),
            "kafka.max.poll.records": "10000",  # Spark requests the ends of a partition at each poll
            "kafkaConsumer.pollTimeoutMs": str(self._try_ms),
            "fetchOffset.numRetries": str(-(-self.broker_wait_ms // ends_ms)),
            "fetchOffset.retryIntervalMs": str(timeouts.SOURCE_PAUSE_MS),
        }

    def kafka_sink_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka sink: the connection to the brokers, and how long Spark waits for
        them."""
        return {
            **self._kafka_options(),
            "kafka.delivery.timeout.ms": str(self._try_ms),
            "kafka.max.block.ms": str(self._try_ms),
            "kafka.max.request.size": str(limits.RECORD_BYTES_MAX + 1_024),
            "kafka.batch.size": str(SINK_BATCH_BYTES),
            "kafka.linger.ms": str(_LINGER_MS),
        }

    @property
    def _try_ms(self) -> int:
        """The longest wait for brokers in one of the tries of a phase."""
        return self.broker_wait_ms // timeouts.BROKER_WAIT_PARTS

    def _kafka_options(self) -> dict[str, str]:
        connect_ms = str(timeouts.CONNECT_TIMEOUT_MS)
        return {
            "kafka.request.timeout.ms": str(min(timeouts.REQUEST_TIMEOUT_MS, self._try_ms - _LINGER_MS)),
            "kafka.socket.connection.setup.timeout.ms": connect_ms,
            "kafka.socket.connection.setup.timeout.max.ms": connect_ms,
            "kafka.reconnect.backoff.max.ms": str(timeouts.RECONNECT_BACKOFF_MAX_MS),
            **{f"kafka.{name}": value for name, value in self.java_client_properties().items()},
        }


def _refuse_unknown_variables(settings: type[Settings]) -> None:
    known = {f"COORDINATOR_{name}".upper() for name in settings.model_fields}
    known |= {CONFIG_FILE_VARIABLE, FORMAT_VARIABLE, "COORDINATOR_CACHE_DIR"}
    for name in sorted(os.environ):
        if name.upper().startswith("COORDINATOR_") and name.upper() not in known:
            raise BadSettings(f"{name}: this setting does not exist.")
