"""What the gateway offers while a broker does not answer."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from streaming.config.settings import Settings
from streaming.gateway import Gateway
from streaming.gateway.members.services import ClientKey
from streaming.gateway.relay.metadata import Address, Cluster
from streaming.gateway.server import server as module

OFFER: Any = object()
"""The response of a broker to ApiVersions."""


class FakeConnection:
    """A connection that records when it is refused."""

    def __init__(self, client_key: ClientKey, refused: list[str]) -> None:
        self.client_key, self._refused = client_key, refused

    def refuse(self, why: str) -> None:
        self._refused.append(self.client_key[1])


async def no_port(node_id: int) -> Address | None:
    return None


@pytest.mark.parametrize(("known", "offered"), [([None], OFFER), ([2], OFFER), ([], None)])
def test_without_an_answer_of_a_broker_another_ones_versions_are_offered(
    known: list[int | None], offered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client keeps what it is offered for as long as its connection lasts: most APIs would be missing."""
    gateway = Gateway(Settings.load(bootstrap_servers="localhost:1"))
    away = set[int | None]({1})

    async def ask_versions(node_id: int | None) -> Any:
        if node_id in away:
            raise ConnectionRefusedError
        return OFFER

    gateway.cluster = Cluster(lambda timeout: None, no_port)

    async def scenario() -> Any:
        await gateway.cluster.learn([(1, "k1", 9092), (2, "k2", 9092)], are_all=True)
        for node_id in known:
            await gateway.offer_of(node_id)
        return await gateway.offer_of(1)

    monkeypatch.setattr(gateway, "_ask_versions", ask_versions)
    assert asyncio.run(scenario()) is offered


def test_frozen_broker_does_not_hide_the_versions_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first client of a gateway, on the bootstrap port, is served by any broker: a frozen one never answers."""
    asked: list[int] = []

    async def ask_versions(node_id: int) -> Any:
        asked.append(node_id)
        return OFFER if node_id == 2 else await asyncio.Event().wait()

    async def scenario() -> Any:
        gateway = Gateway(Settings.load(bootstrap_servers="localhost:1"))
        gateway.cluster = Cluster(lambda timeout: None, no_port)
        await gateway.cluster.learn([(n, f"k{n}", 9092) for n in (1, 2, 3)], are_all=True)
        monkeypatch.setattr(gateway, "_ask_versions", ask_versions)
        return await gateway.offer_of(None)

    monkeypatch.setattr(module, "ATTEMPT_WAIT_S", 0.01)
    while not {1, 3} & set(asked):
        assert asyncio.run(scenario()) is OFFER


def test_a_new_level_of_a_feature_is_offered_within_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client keeps the version of transactions that it found when it connected, whatever the brokers have later."""
    gateway = Gateway(Settings.load(bootstrap_servers="localhost:1"))
    gateway.cluster = Cluster(lambda timeout: None, no_port)
    newer: Any = object()
    answers = iter([OFFER, newer])

    async def ask_versions(node_id: int | None) -> Any:
        return next(answers)

    monkeypatch.setattr(gateway, "_ask_versions", ask_versions)
    assert asyncio.run(gateway.offer_of(1)) is OFFER
    later_s = time.monotonic() + 2.0
    monkeypatch.setattr(module.time, "monotonic", lambda: later_s)
    assert asyncio.run(gateway.offer_of(1)) is newer


def test_clients_do_not_wait_long_for_newer_versions_of_a_frozen_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last response is offered."""
    gateway = Gateway(Settings.load(bootstrap_servers="localhost:1"))
    gateway.cluster = Cluster(lambda timeout: None, no_port)
    gateway._offers[1] = float("-inf"), OFFER
    monkeypatch.setattr(module, "RENEW_WAIT_S", 0.01)
    monkeypatch.setattr(gateway, "_ask_versions", lambda node_id: asyncio.Event().wait())
    assert asyncio.run(asyncio.wait_for(gateway.offer_of(1), module.CONNECT_WAIT_S)) is OFFER


@pytest.mark.parametrize("known", [1, 2])
def test_a_broker_that_is_not_reached_is_not_asked_for_its_versions(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client waits 10 s at most for this response."""
    gateway = Gateway(Settings.load(bootstrap_servers="localhost:1"))
    gateway.cluster = Cluster(lambda timeout: None, no_port)
    gateway.cluster.avoid(frozenset({1}))
    gateway._offers[known] = float("-inf"), OFFER
    monkeypatch.setattr(gateway, "_ask_versions", None)
    assert asyncio.run(gateway.offer_of(1)) is OFFER


def test_clients_of_lost_groups_are_turned_away_with_all_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(Settings.load(bootstrap_servers="localhost:1"))
    gateway.coordinators = SimpleNamespace(is_lost=lambda group_id: group_id == "lost")  # type: ignore[assignment]
    ana, bo = ("/10.0.0.7", "ana", None), ("/10.0.0.7", "bo", None)
    refused: list[str] = []
    for client in (ana, bo, ana):
        connection = FakeConnection(client, refused)
        gateway._connections.add(connection)  # type: ignore[arg-type]
    assert not gateway.reject_moved(["kept"], ana)
    assert gateway.reject_moved(["kept", "lost"], ana)
    assert (refused, gateway.is_rejected(ana), gateway.is_rejected(bo)) == (["ana", "ana"], True, False)
    now_s = time.monotonic() + module.TURNED_AWAY_S
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
    assert not gateway.is_rejected(ana)
