"""The founder: of several coordinators that share the groups, the one that owns the slots which have never moved.

Two coordinators with `slots = all` would both create a group of one name. So with the setting `directory`, the first
start of such a coordinator writes a founder record to that topic, and each start goes on only if the first founder
record there is its own. The order of the topic's only partition decides between two that start at once.

Source: moving.md 4.4.
"""

from confluent_kafka import KafkaError, Message
from msgspec import DecodeError, json

from streaming.config.settings import Settings
from streaming.config.timeouts import ANSWER_WAIT_S
from streaming.errors import Exit, UserError
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import producer
from streaming.kafka.reader import TopicReader

FOUNDER = "founder"
CLIENT_ID = "coordinator-founding"


class FoundedElsewhere(UserError):
    """Another coordinator owns the slots that have never moved."""

    exit_code = Exit.NEEDS_A_PERSON


def ensure(settings: Settings) -> None:
    """Check that this coordinator is the founder, or make it the founder if there is none. The directory must exist.

    Raises:
        FoundedElsewhere: Another coordinator is the founder.
        BrokerUnreachable: No broker answers.
    """
    founder = _first(settings)
    if founder is None:
        _write(settings)
        founder = _first(settings)
    if founder != settings.topic_prefix:
        raise FoundedElsewhere(
            f"{settings.directory_topic} names {founder} as the coordinator with slots = all, and a group must not be"
            f" created by two: start this one with slots = none and a new checkpoint. Its groups come by `coordinator"
            f" checkpoint export` and `import`."
        )


def _first(settings: Settings) -> str | None:
    """Return the prefix in the first founder record; None without one."""
    with TopicReader(settings, [settings.directory_topic], CLIENT_ID) as directory:
        return next((prefix for record in directory.backlog() if (prefix := _founder_in(record.key))), None)


def _founder_in(key: bytes) -> str | None:
    try:
        kind, prefix = json.decode(key, type=tuple[str, str])
    except DecodeError:
        return None
    return prefix if kind == FOUNDER else None


def _write(settings: Settings) -> None:
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    writer = producer(settings, CLIENT_ID, {"acks": "all", "message.timeout.ms": int(ANSWER_WAIT_S * 1_000)})
    key, value = json.encode((FOUNDER, settings.topic_prefix)), json.encode({"prefix": settings.topic_prefix})
    writer.produce(settings.directory_topic, key=key, value=value, on_delivery=delivered)
    writer.flush()
    if errors:
        raise unreachable(settings, errors[0].str(), [settings.directory_topic])
