"""Fencing tokens on the real broker and query: a store with two processes of one static member, and the first token of
a coordinator that has lost its checkpoint."""

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from coordinator.base.states import Phase
from coordinator.messages.events import MemberFenced
from coordinator.messages.group_records import GroupRecord
from streaming.client import Transport
from streaming.config.settings import Settings
from streaming.query.checkpoint.fencing import TokensUnread, find_floor
from streaming.query.coordinator import Coordinator
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.staging import Worker
from tests.system.test_group_member import Pool

pytestmark = pytest.mark.long

DAY_US = 24 * 3_600 * 1_000_000


class Store:
    """A table with the last written token of each resource. It refuses a token that is lower than the stored one."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path)
        self._database.execute("CREATE TABLE work (resource TEXT PRIMARY KEY, token INTEGER NOT NULL)")

    def write(self, resource: str, token: int) -> bool:
        """Write with a token, and return whether the store accepted it."""
        with self._database:
            written = self._database.execute(
                "INSERT INTO work VALUES (?, ?) ON CONFLICT (resource)"
                " DO UPDATE SET token = excluded.token WHERE excluded.token >= work.token",
                (resource, token),
            )
        return written.rowcount == 1

    def close(self) -> None:
        self._database.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "store.sqlite")) as store:
        yield store


@pytest.fixture
def pool(coordinator: Coordinator) -> Iterator[Pool]:
    with Pool(coordinator.settings) as pool:
        yield pool


def test_store_refuses_the_replaced_process_of_a_static_member(pool: Pool, store: Store) -> None:
    """S06, S44: the generation stays the same without a rebalance; only the token distinguishes the two processes."""
    static = {"client_id": "bo", "resources": ["gate"], "group_instance_id": "worker-1", "session_timeout_ms": 60_000}
    old: Worker = pool.worker(**static)
    assert store.write("gate", old.tells("works", pool.turn)[1])
    old.signal(signal.SIGSTOP)
    new: Worker = pool.worker(**static)
    resources, token = new.tells("works", pool.turn)
    assert (resources, store.write("gate", token)) == (["gate"], True)
    old.drain()
    old.signal(signal.SIGCONT)
    resources, shown = old.tells("works", pool.turn)
    assert (resources, store.write("gate", shown)) == (["gate"], False)
    assert store.write("gate", new.tells("works", pool.turn)[1])
    assert next(pool.published(MemberFenced)).fencing_token == token > shown > 2**32
    assert len(pool.rebalances()) == 1
    last = [record for record in stable(pool) if record.members[0].fencing_token == token]
    assert last[-1].generation_id == 1


def stable(pool: Pool) -> list[GroupRecord]:
    found: list[GroupRecord] = []
    for record in pool.published(GroupRecord):
        if record.state is Phase.STABLE:
            found.append(record)
        if len(found) == 2:
            return found
    return found


# -- a lost checkpoint -------------------------------------------------------------------------------------------------


def token_of(settings: Settings, group_id: str) -> int:
    """Make a group of one member, and return the member's token."""
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        asker = Asker(transport, group_id)
        member_id, generation_id = asker.alone()
        return int(asker.ask(asker.syncing(generation_id, member_id)).fencing_token)


@pytest.mark.nightly
def test_new_checkpoint_begins_above_all_tokens_of_its_topic_prefix(
    run_service: Callable[..., Service], tmp_path: Path
) -> None:
    """design.md 17: the state is lost, and the brokers' clocks are a day behind the tokens that were assigned."""
    ahead = time.time_ns() // 1_000 + DAY_US
    service = run_service("lost", fencing_token_floor=ahead, checkpoint=str(tmp_path / "first"))
    service.await_ready()
    assert find_floor(service.settings, print) == ahead, "the setting gives the floor, and no topic is read"
    unset = service.settings.model_copy(update={"fencing_token_floor": 0})
    assert find_floor(unset, print) == 0
    assert token_of(service.settings, "g") == ahead
    assert service.stop() == 0
    assert json.loads((tmp_path / "first" / "identity.json").read_text())["fencing_token_floor"] == ahead

    assert find_floor(unset, print) == ahead + 1
    with pytest.raises(TokensUnread, match=r"lost\.groups could not be read within 0 s .* set fencing_token_floor"):
        find_floor(unset, print, read_s_max=0)
    again = run_service("lost", checkpoint=str(tmp_path / "second"), checkpoint_may_be_empty=True)
    again.await_ready()
    identity = json.loads((tmp_path / "second" / "identity.json").read_text())
    assert identity["fencing_token_floor"] == ahead + 1
    assert token_of(again.settings, "h") > ahead
    assert again.stop() == 0
