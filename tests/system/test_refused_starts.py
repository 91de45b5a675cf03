"""Starts after files or topics were damaged, lost or changed while no coordinator ran.

A start continues as if nothing had changed, or it is refused with a sentence. It never continues with lost state.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from coordinator.messages.requests import ListGroups
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.errors import Exit
from streaming.kafka import topics
from streaming.wire.records import encode_request
from tests.system.replaying import RequestLog, claim, ends, written
from tests.system.starting import STARTED, Starter, starter
from tests.system.waiting import wait_until

pytestmark = pytest.mark.long

Damage = Callable[[Path], object]

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def starts() -> Iterator[Starter]:
    with starter() as starts:
        yield starts


@pytest.fixture(scope="module")
def good(broker: Broker, tmp_path_factory: pytest.TempPathFactory, starts: Starter) -> Settings:
    """Return settings with a checkpoint of several batches."""
    settings = settings_of(broker, "good", tmp_path_factory.mktemp("good"))
    claim(settings)
    log = RequestLog(settings)
    for _ in range(3):
        log.append()
        assert starts.start(settings) == STARTED
    return settings


def settings_of(broker: Broker, topic_prefix: str, folder: Path) -> Settings:
    return Settings.load(
        bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=topic_prefix,
        replication_factor=1,
        request_partitions=4,
        checkpoint=str(folder / "state"),
        group_initial_rebalance_delay_ms=0,
    )


# -- damaged checkpoints -----------------------------------------------------------------------------------------------


def newest(folder: Path) -> Path:
    """Return the file of the last batch in one of Spark's folders."""
    return max((file for file in folder.iterdir() if file.stem.isdigit()), key=lambda file: int(file.stem))


def longest_state(query: Path) -> Path:
    """Return the largest state file, to damage it: the newest one may be of a batch without records for its task."""
    return max((query / STATE).glob("*.delta"), key=lambda file: file.stat().st_size)


def flip(folder: str, after: bytes | int) -> Damage:
    """Return a damage that changes one bit of the newest file, at an index or after a text."""

    def flipped(query: Path) -> None:
        file = newest(query / folder)
        found = bytearray(file.read_bytes())
        found[after if isinstance(after, int) else found.index(after) + len(after)] ^= 1
        file.write_bytes(found)

    return flipped


def cut(folder: str, length: int) -> Damage:
    """Return a damage that cuts the newest file to its first bytes, as a loss of power may (F8)."""

    def cut_short(query: Path) -> None:
        file = newest(query / folder)
        file.write_bytes(file.read_bytes()[:length])

    return cut_short


def flip_a_state(query: Path) -> None:
    """Change one bit in the middle of a state, in a shard's text. A bit near the beginning may have no effect."""
    file = longest_state(query)
    found = bytearray(file.read_bytes())
    found[len(found) // 2] ^= 1
    file.write_bytes(found)


def halve_a_state(query: Path) -> None:
    file = longest_state(query)
    found = file.read_bytes()
    file.write_bytes(found[: len(found) // 2])


PLANS, COMMITS, STATE = "offsets", "commits", "state/0/0"
NOTES, GROUPS = "is damaged (Spark's notes of its batches ", "is damaged (the groups' state "

DAMAGES: Mapping[str, tuple[Damage, str]] = {
    "a bit of a plan's version": (flip(PLANS, 1), NOTES),
    "a bit of a plan's time": (flip(PLANS, b'batchTimestampMs"'), NOTES),
    "a bit of a plan's ends": (flip(PLANS, -1), NOTES),
    "an empty plan": (cut(PLANS, 0), NOTES),
    "half a plan": (cut(PLANS, 40), NOTES),
    "no plans": (lambda query: shutil.rmtree(query / PLANS), "(missing: query/offsets)"),
    "no commits": (lambda query: shutil.rmtree(query / COMMITS), "(missing: query/commits)"),
    "neither": (lambda query: [shutil.rmtree(query / each) for each in (PLANS, COMMITS)], "(missing: query/offsets)"),
    "no state at all": (lambda query: shutil.rmtree(query / "state"), "(missing: query/state)"),
    "a bit of a commit's version": (flip(COMMITS, 1), NOTES),
    "a bit of a commit": (flip(COMMITS, 4), NOTES),
    "an empty commit": (cut(COMMITS, 0), NOTES),
    "a bit of a state": (flip_a_state, GROUPS),
    "half a state": (halve_a_state, GROUPS),
    "an empty state": (cut(STATE, 0), GROUPS),
    "no newest state": (lambda query: newest(query / STATE).unlink(), GROUPS),
    "a hole in the states": (lambda query: (query / STATE / "2.delta").unlink(), GROUPS),
    "no metadata": (lambda query: (query / "metadata").unlink(), "(missing: query/metadata)"),
    "a bit of the metadata": (lambda query: (query / "metadata").write_text("z" + "{}"), NOTES),
    "an identity that is none": (lambda query: (query.parent / "identity.json").write_text("z"), "cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_is_refused(name: str, good: Settings, starts: Starter, tmp_path: Path) -> None:
    """F8: no start continues with a flipped bit, or with a truncated, empty or missing file."""
    damage, told = DAMAGES[name]
    shutil.copytree(good.checkpoint, tmp_path / "state")
    damage(tmp_path / "state" / "query")
    ending = starts.start(good.model_copy(update={"checkpoint": str(tmp_path / "state")}))
    assert ending.is_refused, ending.told
    assert f"{tmp_path / 'state'}" in ending.told
    assert told in ending.told
    assert "restore it from a back-up" in ending.told
    assert "\n" not in ending.told


LOST: Mapping[str, Damage] = {
    "no folder, as of a volume that is not mounted": lambda query: shutil.rmtree(query.parent),
    "an empty folder": lambda query: (shutil.rmtree(query.parent), query.parent.mkdir()),
    "nothing but the identity": lambda query: shutil.rmtree(query),
}


@pytest.mark.parametrize("stand_by", [False, True])
@pytest.mark.parametrize("name", LOST)
def test_a_lost_checkpoint_is_refused(
    name: str, good: Settings, starts: Starter, tmp_path: Path, *, stand_by: bool
) -> None:
    """The topics show that there was one. A start would lose all groups, and a driver that stands by could not take
    over."""
    shutil.copytree(good.checkpoint, tmp_path / "state")
    LOST[name](tmp_path / "state" / "query")
    before = sorted(tmp_path.rglob("*"))
    ending = starts.start(good.model_copy(update={"checkpoint": str(tmp_path / "state"), "stand_by": stand_by}))
    assert (ending.is_refused, ending.exit_code) == (True, Exit.NEEDS_A_PERSON), ending.told
    assert f"{tmp_path / 'state'} has no batch, and good.events has records of batches: mount or rest" in ending.told
    assert sorted(tmp_path.rglob("*")) == before, "nothing was written"


def test_start_without_the_lost_groups_is_possible_on_purpose(good: Settings, starts: Starter, tmp_path: Path) -> None:
    settings = good.model_copy(update={"checkpoint": str(tmp_path / "state"), "topic_prefix": "over"})
    topics.ensure(settings)
    for checkpoint in ("first", "second"):
        changed = {"checkpoint": str(tmp_path / checkpoint), "checkpoint_may_be_empty": checkpoint == "second"}
        RequestLog(settings).append()
        assert starts.start(settings.model_copy(update=changed)) == STARTED


def test_changed_secret_is_refused(good: Settings, starts: Starter, tmp_path: Path) -> None:
    """F8: with one changed bit of the secret, a repeated batch would make other member ids."""
    shutil.copytree(good.checkpoint, tmp_path / "state")
    file = tmp_path / "state" / "identity.json"
    file.write_bytes(file.read_bytes().replace(b'"secret":"5', b'"secret":"4'))
    ending = starts.start(good.model_copy(update={"checkpoint": str(tmp_path / "state")}))
    assert ending.is_refused, ending.told
    assert ending.told == f"{file} cannot be read (it fails its checksum): restore it from a back-up."


def test_plan_with_fewer_tasks_is_refused(broker: Broker, starts: Starter, tmp_path: Path) -> None:
    """F8: Spark uses the number of tasks in its plan. With a flipped bit, shards would get the state of others."""
    settings = settings_of(broker, "tasks", tmp_path).model_copy(update={"shuffle_partitions": 3})
    claim(settings)
    log = RequestLog(settings)
    log.append()
    assert starts.start(settings) == STARTED
    flip(PLANS, b'"spark.sql.shuffle.partitions":"')(tmp_path / "state" / "query")  # 3 becomes 2
    log.append()
    ending = starts.start(settings)
    assert ending.is_refused, ending.told
    assert "is damaged (Spark's notes of its batches are for 2 tasks, not 3): restore it from a back-up" in ending.told


def test_same_checkpoint_without_damage_is_accepted(good: Settings, starts: Starter, tmp_path: Path) -> None:
    """The starts above are refused only because of the damage."""
    shutil.copytree(good.checkpoint, tmp_path / "state")
    assert starts.start(good.model_copy(update={"checkpoint": str(tmp_path / "state")})) == STARTED


def test_changed_digit_of_a_plan_is_reported(broker: Broker, starts: Starter, tmp_path: Path) -> None:
    """F8: a plan has no checksum. Repeated requests change nothing, and an event names the skipped requests."""
    settings = settings_of(broker, "digits", tmp_path)
    claim(settings)
    log = RequestLog(settings)
    log.append()
    assert starts.start(settings) == STARTED
    plan = newest(Path(settings.checkpoint) / "query" / PLANS)
    *before, line = plan.read_text().splitlines()
    ends_of = json.loads(line)
    planned = ends_of[settings.requests_topic]
    (again, passed), was = ("0", "1"), dict(planned)
    planned[again], planned[passed] = was[again] - 1, was[passed] + 1
    plan.write_text("\n".join([*before, json.dumps(ends_of)]))
    log.append()
    assert starts.start(settings) == STARTED
    told = [json.loads(value) for r in written(settings) if (value := r.value) and b'"event":"log_broken"' in value]
    assert {(e["partition"], e["expected"], e["found"]) for e in told} == {
        (int(again), was[again], planned[again]),
        (int(passed), was[passed], planned[passed]),
    }


def test_outdated_backup_is_refused_unless_allowed_by_the_setting(
    good: Settings, starts: Starter, tmp_path: Path
) -> None:
    """F8: such a start would decide published facts again. Its newest plan is an hour older than the newest event."""
    shutil.copytree(good.checkpoint, tmp_path / "state")
    plan = newest(tmp_path / "state" / "query" / PLANS)
    version, planned, *rest = plan.read_text().splitlines()
    noted = json.loads(planned)
    noted["batchTimestampMs"] -= HOUR_MS
    plan.write_text("\n".join([version, json.dumps(noted), *rest]))
    overtaken = good.model_copy(update={"checkpoint": str(tmp_path / "state")})
    ending = starts.start(overtaken)
    assert ending.is_refused, ending.told
    assert re.search(r"/state ends (5\d|60) min before events on good.events:", ending.told), ending.told
    assert starts.start(overtaken.model_copy(update={"checkpoint_may_be_outdated": True})) == STARTED


def test_requests_at_the_offsets_of_lost_requests_are_not_skipped(
    broker: Broker, starts: Starter, tmp_path: Path
) -> None:
    """F8: after a loss of power the broker has lost requests, and new ones have reached the checkpoint's offset.

    Times alone show it for a batch that is not finished: the test dates the batch an hour before the requests that it
    handled. `test_replaced_log` has the other cases.
    """
    settings = settings_of(broker, "regrown", tmp_path)
    claim(settings)
    listing = encode_request(ListGroups(request_id="list", reply_to="inbox"))  # no event is about it
    with closing(KafkaProducer(**settings.kafka_client_arguments())) as producer:
        producer.send(settings.requests_topic, listing, b"any", partition=2)
    assert starts.start(settings) == STARTED
    plan = newest(Path(settings.checkpoint) / "query" / PLANS)
    version, planned, *rest = plan.read_text().splitlines()
    noted = json.loads(planned)
    noted["batchTimestampMs"] -= HOUR_MS
    plan.write_text("\n".join([version, json.dumps(noted), *rest]))
    ending = starts.start(settings)
    assert ending.is_refused, ending.told
    assert re.match(
        r"Handled requests are gone from regrown\.requests, .* in partition \d, another record", ending.told
    )
    assert starts.start(settings.model_copy(update={"checkpoint_may_be_outdated": True})) == STARTED


# -- unusable checkpoints ----------------------------------------------------------------------------------------------


def test_another_number_of_tasks_is_refused(good: Settings, starts: Starter) -> None:
    """Spark would continue with the old number without a message."""
    ending = starts.start(good.model_copy(update={"shuffle_partitions": 3}))
    assert ending.is_refused
    assert "shuffle_partitions was 2 and is 3" in ending.told


def test_folder_that_cannot_be_made_is_reported(broker: Broker, starts: Starter, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in its place")
    ending = starts.start(settings_of(broker, "unmade", tmp_path / "file"))
    assert ending.is_refused, ending.told
    assert "cannot be written" in ending.told


# -- changed topics ----------------------------------------------------------------------------------------------------


def test_deleted_unread_requests_are_not_skipped(broker: Broker, starts: Starter, tmp_path: Path) -> None:
    """Retention or an operator has deleted requests that the query had not read."""
    settings = settings_of(broker, "truncated", tmp_path)
    claim(settings)
    log = RequestLog(settings)
    log.append(silent=0)  # nothing is due later: a stop never abandons a batch that still writes
    assert starts.start(settings) == STARTED
    log.append(silent=0)
    before = len(written(settings))
    gone = {
        TopicPartition(settings.requests_topic, p): end for p, end in ends(settings, settings.requests_topic).items()
    }
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        admin.delete_records(gone)
    ending = starts.start(settings)
    assert ending.is_refused, ending.told
    assert ending.told.startswith("Unhandled requests are gone from truncated.requests")
    assert len(written(settings)) == before


def test_only_a_deleted_replies_topic_is_made_again(broker: Broker, starts: Starter, tmp_path: Path) -> None:
    """The replies topic is made again, since no client waits for old replies. Groups and events cannot be restored."""
    settings = settings_of(broker, "lost", tmp_path)
    assert starts.start(settings) == STARTED
    delete(settings, settings.replies_topic)
    assert starts.start(settings) == STARTED
    for topic in (settings.groups_topic, settings.events_topic):
        delete(settings, topic)
        ending = starts.start(settings)
        assert ending.is_refused
        assert f"topic {topic} is not the one it was made with" in ending.told


def delete(settings: Settings, topic: str) -> None:
    with KafkaAdminClient(**settings.kafka_client_arguments()) as admin:
        admin.delete_topics([topic])
        wait_until(lambda: not admin.describe_topics([topic])[0]["partitions"])
