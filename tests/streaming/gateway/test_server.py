"""What the gateway offers while a broker does not answer."""

import asyncio
from typing import Any

import pytest

from streaming.config.settings import Settings
from streaming.gateway import Gateway

OFFER: Any = object()
"""The response of a broker to ApiVersions."""


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

    async def scenario() -> Any:
        for node_id in known:
            await gateway.offer_of(node_id)
        return await gateway.offer_of(1)

    monkeypatch.setattr(gateway, "_ask_versions", ask_versions)
    assert asyncio.run(scenario()) is offered
