"""All settings in one object: from flags, `COORDINATOR_*` variables or a TOML file, in that order.

Settings that Kafka's brokers also have keep their Kafka names here.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from coordinator import limits
from coordinator.config import MINUTE_MS, Config
from streaming.config.principals import AccessControl
from streaming.config.security import BrokerAccess, GatewayAccess
from streaming.errors import Exit, UserError
from streaming.logs import FORMAT_VARIABLE
from streaming.wire.signing import Signer, Signing

CONFIG_FILE_VARIABLE = "COORDINATOR_CONFIG"

_SOURCE_ATTEMPTS = 3
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


class Settings(GatewayAccess, AccessControl, BrokerAccess):
    """The settings of the service, its topics and its groups. Times have the unit at the end of the name."""

    model_config = SettingsConfigDict(env_prefix="COORDINATOR_", extra="forbid", frozen=True)

    # Kafka; the settings of the connection are in `BrokerAccess`
    topic_prefix: str = Field(
        "coordinator", pattern=r"^[a-zA-Z0-9._-]{1,200}$", description="Topics are named PREFIX.requests and so on."
    )
    request_partitions: int = Field(16, ge=1, le=1000, description="Shards; fixed for the life of the topic.")
    reply_partitions: int = Field(16, ge=1, le=1000, description="Partitions of the reply topic.")
    replication_factor: int = Field(3, ge=1, le=32, description="Copies of each topic that is created.")
    broker_wait_ms: int = Field(
        90_000, ge=3_000, le=3_600_000, description="How long the query waits for brokers that do not answer."
    )

    # monitoring
    health_host: str = Field("127.0.0.1", min_length=1, description="Where a process says how it is.")
    health_port: int | None = Field(
        None, ge=0, le=65_535, description="Port of /healthz, /readyz and /metrics; nowhere when not set."
    )

    # the dashboard
    dashboard_host: str = Field("127.0.0.1", min_length=1, description="Where the page listens; anybody there sees it.")
    dashboard_port: int = Field(9494, ge=0, le=65_535, description="The page's port; with 0 any that is free.")
    dashboard_names: str = Field("", description="Names by which a proxy on this machine asks for it, comma-separated.")
    dashboard_metrics_groups_max: int = Field(
        1_000, ge=0, le=1_000_000, description="How many groups have figures of their own at the page's /metrics."
    )
    dashboard_metrics_of_partitions: bool = Field(False, description="Give figures of single partitions as well.")

    # Spark
    master: str | None = Field(None, description="Spark master; local[2] unless spark-submit names one.")
    shuffle_partitions: int = Field(
        2, ge=1, le=1000, description="Tasks that serve shards side by side; about the cores. Fixed for a checkpoint."
    )
    checkpoint: str = Field("checkpoints/default", min_length=1, description="Folder of the query's state.")
    checkpoint_may_be_outdated: bool = Field(
        False, description="Start though events tell of a later time: a clock was ahead, or the newest one is lost."
    )
    checkpoint_synced: bool = Field(
        True, description="Have a local disk hold what a batch rests on before it says anything; off for a faster one."
    )
    state_store: Literal["hdfs", "rocksdb"] = Field(
        "hdfs", description="Where Spark keeps state: in memory, or in RocksDB. Fixed for a checkpoint."
    )
    max_requests_per_batch: int = Field(
        500_000, ge=1, description="Requests of one batch at most; what is beyond waits for the next one."
    )

    # the gateway; the settings of its certificates are in `GatewayAccess`
    gateway_host: str = Field("127.0.0.1", min_length=1, description="Where the gateway listens.")
    gateway_port: int = Field(
        9192,
        ge=0,
        le=65_535,
        description="Clients' bootstrap port. Broker N is served at this plus 1 plus N; with 0 all are free ones.",
    )
    gateway_advertised_host: str | None = Field(
        None, min_length=1, description="What clients are told to connect to; gateway_host when not set."
    )
    gateway_metrics_port: int | None = Field(
        None, ge=0, le=65_535, description="The same of the gateway, at gateway_host; nowhere when not set."
    )
    gateway_linger_ms: Milliseconds = Field(5, description="How long a request waits for others to go with it.")
    gateway_heartbeat_hold_ms: Milliseconds = Field(
        2_250, description="How long the answer to a heartbeat may wait for the news of a rebalance; 0 for not at all."
    )
    gateway_hold_ms: Milliseconds = Field(
        5_000, description="How long who looks for a coordinator that does not answer waits before it is told so."
    )
    gateway_connections_max: int = Field(10_000, ge=1, description="Connections of clients at a time.")
    gateway_connections_max_idle_ms: Milliseconds = Field(
        600_000, description="A connection without a request for so long is closed."
    )

    # groups, by the names of Kafka's broker settings
    group_initial_rebalance_delay_ms: Milliseconds = 3_000
    group_min_session_timeout_ms: Milliseconds = 6_000
    group_max_session_timeout_ms: Milliseconds = 1_800_000
    group_max_size: int = Field(10_000, ge=1, le=limits.ASSIGNMENTS_MAX)
    offsets_retention_minutes: Minutes = 10_080
    offsets_retention_minutes_by_group: dict[str, Minutes] = Field(
        {}, description="By group id, where it is otherwise; in the environment as a JSON object."
    )
    offset_metadata_max_bytes: int = Field(4_096, ge=0, le=limits.COMMIT_METADATA_CHARS_MAX)

    fencing_token_floor: int = Field(
        0, ge=0, le=limits.FENCING_TOKEN_FLOOR_MAX, description="No fencing token is below it: see the runbook."
    )

    # time
    clock_slack_ms: Milliseconds = Field(1_000, description="How far clocks of brokers and driver may differ.")
    late_notice_ms: Milliseconds = Field(
        5_000, description="A deadline noticed later than this is waited for once more."
    )

    @model_validator(mode="after")
    def _session_bounds_in_order(self) -> Self:
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            raise ValueError("group_min_session_timeout_ms is above group_max_session_timeout_ms")
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
            problem = "there is no such setting" if first["type"] == "extra_forbidden" else first["msg"]
            raise BadSettings(f"{name}: {problem}." if name else f"{problem}.") from None
        except SettingsError as error:
            raise BadSettings(f"{error}: a JSON object is wanted.") from None
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
    def topics(self) -> tuple[str, ...]:
        """The names of all topics of the coordinator."""
        return self.requests_topic, self.replies_topic, self.groups_topic, self.events_topic

    @property
    def is_relayed_as_gateway(self) -> bool:
        """Whether the brokers take relayed requests for the gateway's own, because they know the gateway by its
        certificate."""
        return self.security_protocol == "SSL" and self.ssl_certfile is not None

    def signing(self) -> Signing | None:
        """Return the signing of requests to this coordinator; None without a key."""
        return self.signing_for(self.requests_topic)

    def signer(self) -> Signer:
        """Return the signer with the principal of our own commands."""
        return Signer(self.signing(), self.asking_as(self.sasl_username))

    def group_config(self, fencing_token_floor: int = 0) -> Config:
        """Return the settings that the core needs.

        Args:
            fencing_token_floor: The checkpoint's own floor. The higher one of it and the setting counts.
        """
        return Config(
            fencing_token_floor=max(fencing_token_floor, self.fencing_token_floor),
            group_initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            group_min_session_timeout_ms=self.group_min_session_timeout_ms,
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            group_max_size=self.group_max_size,
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
        return {
            **self._kafka_options(),
            "kafka.default.api.timeout.ms": str(self.broker_wait_ms // _SOURCE_ATTEMPTS),
            "kafka.request.timeout.ms": str(min(30_000, self.broker_wait_ms // _SOURCE_ATTEMPTS)),
            "kafka.max.poll.records": "10000",  # Spark requests the ends of a partition at each poll
            "fetchOffset.numRetries": str(_SOURCE_ATTEMPTS),
        }

    def kafka_sink_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka sink: the connection to the brokers, and how long Spark waits for
        them."""
        return {
            **self._kafka_options(),
            "kafka.delivery.timeout.ms": str(self.broker_wait_ms),
            "kafka.request.timeout.ms": str(min(30_000, self.broker_wait_ms - _LINGER_MS)),
            "kafka.max.request.size": str(limits.RECORD_BYTES_MAX + 1_024),
            "kafka.batch.size": str(SINK_BATCH_BYTES),
            "kafka.linger.ms": str(_LINGER_MS),
        }

    def _kafka_options(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in self.java_client_properties().items()}


def _refuse_unknown_variables(settings: type[Settings]) -> None:
    known = {f"COORDINATOR_{name}".upper() for name in settings.model_fields}
    known |= {CONFIG_FILE_VARIABLE, FORMAT_VARIABLE, "COORDINATOR_CACHE_DIR"}
    for name in sorted(os.environ):
        if name.upper().startswith("COORDINATOR_") and name.upper() not in known:
            raise BadSettings(f"{name}: there is no such setting.")
