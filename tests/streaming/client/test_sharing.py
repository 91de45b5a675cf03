"""The transports that members of a process share."""

from pathlib import Path
from typing import Any

from streaming.client.config import configure_member
from streaming.client.sharing import borrow, give_back, opened_by


class Opened:
    """A transport that stores its arguments."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments, self.is_closed = arguments, False

    def close(self) -> None:
        self.is_closed = True


def test_members_with_equal_settings_share_a_transport() -> None:
    config = {"group_id": "g", "bootstrap_servers": "b:1"}
    with opened_by(Opened):
        first, second = (borrow(configure_member({**config, "group_id": name})) for name in "gh")
        settings = (("topic_prefix", "B"), ("peers", ["B"]), ("bootstrap_servers", "c:1"))
        others = [borrow(configure_member(config | {name: value})) for name, value in settings]
        assert first is second
        assert len({id(each) for each in (first, *others)}) == 4
        give_back(first)
        assert not first.is_closed
        give_back(first)
        assert first.is_closed


def test_a_transport_signs_for_each_coordinator(tmp_path: Path) -> None:
    """A group that has moved to another coordinator has its requests signed for that one."""
    (file := tmp_path / "key").write_text("a-key-of-more-than-thirty-two-bytes\n")
    config = configure_member({"group_id": "g", "access_key_file": str(file), "peers": ["B"]})
    with opened_by(Opened):
        _, prefix, signer_at, peers = borrow(config).arguments
    assert (prefix, peers) == ("coordinator", ("B",))
    assert repr(signer_at("B")) != repr(signer_at("coordinator"))
