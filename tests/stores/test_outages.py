"""Outages of the checkpoint's store: a member keeps its partitions and commits, and readiness tells the truth.

The member commits again and again. It waits for each response for as long as it takes, as a consumer that reads on.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from typing import Self
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from streaming.cli.main import app
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import Exit
from tests.ports import free_port
from tests.stores.objects import Objects
from tests.stores.proxy import Proxy, every, none
from tests.system.asking import Asker
from tests.system.conftest import Service
from tests.system.replaying import last_words
from tests.system.test_replay import Run
from tests.system.test_sentences import run as command
from tests.system.waiting import HANG_S, wait_until
from tests.tiers import NIGHTLY

SESSION_MS = 45_000
PAUSE_S = 0.2
READY_S = 10.0
"""The longest time until readiness shows an outage, on a machine with other work: a batch is patient for 2 s, and a
store for 5 s."""

SENTENCE = "The checkpoint's store does not answer ("


class Member:
    """The only member of a group, which commits in a thread until the block ends."""

    def __init__(self, settings: Settings) -> None:
        self._transport = Transport(settings.kafka_client_arguments(), settings.topic_prefix)
        self.acknowledged, self.errors = 0, set[str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._commit, daemon=True)

    def __enter__(self) -> Self:
        self._transport.__enter__()
        self._asker = Asker(self._transport, "orders")
        self.member_id, self.generation = self._asker.alone(session_timeout_ms=SESSION_MS)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(HANG_S)
        self._transport.__exit__(None, None, None)

    def _commit(self) -> None:
        while not self._over.wait(PAUSE_S):
            offset = self.acknowledged + 1
            self.errors.add(self._asker.heartbeat(self.generation, self.member_id).error)
            self.errors.add(self._asker.commit(self.generation, self.member_id, offset).error)
            self.acknowledged = offset

    def await_commits(self, number: int, service: Service) -> None:
        """Wait for more acknowledged commits."""
        wanted = self.acknowledged + number
        wait_until(lambda: self.acknowledged >= wanted or service.process.poll(), account=lambda: service.log[-3_000:])

    def committed(self) -> int:
        self._over.set()
        self._thread.join(HANG_S)
        return self._asker.fetch()[("t", 0)]


class Readiness:
    """The answers of /readyz."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/readyz"

    def reasons(self) -> list[str]:
        """Return why the process is not ready; nothing if it is."""
        try:
            with urlopen(self._url, timeout=HANG_S) as answer:
                assert answer.status == HTTPStatus.OK
                return []
        except HTTPError as refused:
            return list(json.load(refused)["why"])

    def await_no(self, within_s: float = READY_S) -> None:
        wait_until(lambda: any(SENTENCE in reason for reason in self.reasons()), within_s, self.reasons)

    def await_yes(self, within_s: float = READY_S) -> None:
        wait_until(lambda: not self.reasons(), within_s, self.reasons)


def no_answer(proxy: Proxy) -> AbstractContextManager[None]:
    return proxy.away()


@contextmanager
def only_503(proxy: Proxy) -> Iterator[None]:
    proxy.refused = every
    yield
    proxy.refused = none


@contextmanager
def late_responses(proxy: Proxy) -> Iterator[None]:
    """Pass each request on after 25 s, which is longer than a client waits for a response."""
    proxy.delay_s = 25.0
    yield
    proxy.delay_s = 0.0


OUTAGES = [
    # kind, seconds
    pytest.param(no_answer, 12, marks=pytest.mark.long),
    pytest.param(no_answer, 5, marks=NIGHTLY),
    pytest.param(no_answer, 60, marks=NIGHTLY),
    pytest.param(no_answer, 300, marks=NIGHTLY),
    pytest.param(only_503, 30, marks=NIGHTLY),
    pytest.param(late_responses, 30, marks=NIGHTLY),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("outage", "duration_s"), OUTAGES)
def test_member_keeps_its_partitions_and_commits_while_the_store_is_away(
    run: Run,
    settings: Settings,
    proxy: Proxy,
    outage: Callable[[Proxy], AbstractContextManager[None]],
    duration_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    service = run(health_port=port)
    service.await_ready()
    ready = Readiness(port)
    ready.await_yes()
    with Member(settings) as member:
        member.await_commits(3, service)
        begun_s = time.monotonic()
        with outage(proxy):
            if duration_s > READY_S:
                ready.await_no()
            print(f"not ready after {time.monotonic() - begun_s:.1f} s")
            while (left_s := begun_s + duration_s - time.monotonic()) > 0:  # the outage is what is tested
                assert duration_s <= READY_S or ready.reasons()
                time.sleep(min(left_s, PAUSE_S))
        over_s = time.monotonic()
        member.await_commits(1, service)
        print(f"a commit is acknowledged {time.monotonic() - over_s:.1f} s after the outage")
        ready.await_yes()
        member.await_commits(3, service)
        committed = member.committed()
        assert member.errors == {"NONE"}, "the same member and generation"
        assert committed == member.acknowledged
    assert (SENTENCE in service.log) or duration_s <= READY_S
    assert service.stop() == 0, service.log
    monkeypatch.setenv("COORDINATOR_REQUEST_PARTITIONS", str(settings.request_partitions))
    words = ["verify", "-b", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    verified = CliRunner().invoke(app, words)
    assert verified.exit_code == 0, verified.output


@pytest.mark.long
@pytest.mark.nightly
def test_query_ends_if_the_store_is_away_for_longer_than_it_waits(run: Run, settings: Settings, proxy: Proxy) -> None:
    service = run(checkpoint_wait_ms=3_000)
    service.await_ready()
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport, proxy.away():
        Asker(transport, "orders").begin(Asker(transport, "orders").joining())
        assert last_words(service).startswith(SENTENCE)
    assert service.process.returncode == Exit.FAILED


@pytest.mark.long
@pytest.mark.nightly
def test_start_waits_for_the_store_and_a_command_does_not(run: Run, objects: Objects, proxy: Proxy) -> None:
    with proxy.away():
        service = run()
        wait_until(lambda: SENTENCE in service.log or service.process.poll() is not None, account=lambda: service.log)
    service.await_ready()
    assert service.stop() == 0, service.log
    where = {"COORDINATOR_STORE_ENDPOINT": proxy.url, "COORDINATOR_STORE_REGION": "us-east-1"}
    code, _ = command("checkpoint", "verify", objects.address, **where)
    assert code == Exit.DONE
    with proxy.away():
        code, sentence = command("checkpoint", "verify", objects.address, **where)
    assert code == Exit.FAILED
    assert sentence.startswith(f"coordinator: {SENTENCE}")
