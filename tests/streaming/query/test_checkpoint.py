"""The claim of a checkpoint: which identity fits. `tests/system/test_refused_starts` has the claims on real folders."""

from typing import Any

import pytest
from msgspec import structs

from coordinator.state.codec import VERSION
from streaming.config.settings import Settings
from streaming.errors import CheckpointMismatch, Exit
from streaming.query.checkpoint import checkpoint
from streaming.query.checkpoint.identity import Identity

SETTINGS = Settings(checkpoint="/main")
IDENTITY = Identity(
    secret="s",
    topic_ids={"coordinator.requests": "id"},
    request_partitions=SETTINGS.request_partitions,
    shuffle_partitions=SETTINGS.shuffle_partitions,
    state_store=SETTINGS.state_store,
)


def claimed(monkeypatch: pytest.MonkeyPatch, found: Identity) -> Identity:
    """Claim a checkpoint with an identity and without a batch."""
    monkeypatch.setattr(checkpoint, "read_identity", lambda spark, folder: found)
    monkeypatch.setattr(checkpoint, "newest_plan", lambda spark, settings: None)
    spark: Any = None
    return checkpoint.claim(spark, SETTINGS, dict(IDENTITY.topic_ids), lambda: 0)


def test_the_own_checkpoint_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    assert claimed(monkeypatch, IDENTITY) == IDENTITY


@pytest.mark.parametrize("codec", [1, VERSION - 1, VERSION + 1])
def test_another_codec_is_refused_in_one_sentence(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointMismatch) as caught:
        claimed(monkeypatch, structs.replace(IDENTITY, codec_version=codec, request_partitions=99))
    assert caught.value.exit_code == Exit.NEEDS_A_PERSON == 78
    assert str(caught.value) == (
        f"The checkpoint /main has states of codec {codec}, and this version reads codec {VERSION}: start it with the"
        " version that wrote it, or export its groups with that version (`coordinator checkpoint export`), and import"
        " the file with a version that reads it."
    )


def test_all_differences_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        CheckpointMismatch, match=r"request_partitions was 99 and is \d+; topic coordinator.requests is"
    ):
        claimed(monkeypatch, structs.replace(IDENTITY, request_partitions=99, topic_ids={"coordinator.requests": "x"}))
