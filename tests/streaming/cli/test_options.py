"""Options that several commands have."""

import pytest
import typer

from streaming.cli.lib.options import with_peers
from streaming.config.peers import PEERS_MAX
from streaming.config.settings import Settings

SETTINGS = Settings(topic_prefix="a")


@pytest.mark.parametrize(("named", "peers"), [(None, ()), (["b", "a", "c", "b"], ("b", "c"))])
def test_each_other_coordinator_is_a_peer_once(named: list[str] | None, peers: tuple[str, ...]) -> None:
    assert with_peers(SETTINGS, named).peers == peers


def test_peers_have_a_bound() -> None:
    named = [f"p{number}" for number in range(PEERS_MAX + 1)]
    assert len(with_peers(SETTINGS, named[:-1]).peers) == PEERS_MAX
    with pytest.raises(typer.BadParameter, match=f"{PEERS_MAX + 1} peers are named, and {PEERS_MAX} are allowed"):
        with_peers(SETTINGS, named)
