"""Tests of the settings of groups that move between coordinators."""

from pathlib import Path

import pytest

from streaming.config.settings import BadSettings, Settings
from streaming.kafka.acls import Role, commands

KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    file = tmp_path / "peer.key"
    file.write_text(KEY + "\n")
    return str(file)


def test_without_peers_all_slots_are_those_of_the_coordinator() -> None:
    settings = Settings.load(topic_prefix="a")
    config = settings.group_config()
    assert (config.prefix, config.peers, config.slots) == ("a", (), "all")
    assert settings.peering() is None


def test_peers_have_a_key_and_topics(key_file: str) -> None:
    settings = Settings.load(topic_prefix="a", peers=["b", "c"], peer_key_file=key_file, slots="none")
    config, peering = settings.group_config(), settings.peering()
    assert (config.prefix, config.peers, config.slots) == ("a", ("b", "c"), "none")
    assert peering is not None
    assert peering.topics == {"b": "b.requests", "c": "c.requests"}
    assert KEY not in repr(peering) + repr(settings)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"peers": ["b"]}, "peers needs a peer_key_file, because records of an unknown sender change no group."),
        ({"slots": "none"}, "slots = none needs peers, because no group could ever come."),
    ],
)
def test_settings_that_do_not_fit_are_refused(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Settings.load(**flags)
    assert str(refused.value) == sentence


def test_a_prefix_may_occur_once_and_not_be_the_own_one(key_file: str) -> None:
    with pytest.raises(BadSettings, match=r"peers has a prefix twice\."):
        Settings.load(peers=["b", "b"], peer_key_file=key_file)
    with pytest.raises(BadSettings, match=r"topic_prefix is one of the peers\."):
        Settings.load(topic_prefix="b", peers=["b"], peer_key_file=key_file)


@pytest.mark.parametrize("text", ["short", KEY + " " + KEY, ""])
def test_a_key_file_has_one_long_key(tmp_path: Path, text: str) -> None:
    file = tmp_path / "peer.key"
    file.write_text(text)
    with pytest.raises(BadSettings, match="must contain one key of 32 bytes or more"):
        Settings.load(peers=["b"], peer_key_file=str(file))


def test_a_coordinator_may_write_to_its_peers(key_file: str) -> None:
    settings = Settings.load(peers=["b"], peer_key_file=key_file)
    printed = set(commands(Role.COORDINATOR, "User:a", settings))
    [added] = printed - set(commands(Role.COORDINATOR, "User:a", Settings.load()))
    assert added.endswith("--operation Write --operation DescribeConfigs --topic b.requests")
