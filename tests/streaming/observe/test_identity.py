"""Tests of the identity of an observer's checkpoint, against that of a coordinator's, without Spark."""

from typing import Any

import msgspec
import pytest

from streaming.errors import CheckpointMismatch
from streaming.observe.identity import ObservedIdentity
from streaming.query.checkpoint.identity import Identity, Sealed, decoded

OBSERVERS = ObservedIdentity(
    topic_ids={}, source_partitions=50, output_partitions=16, shuffle_partitions=2, state_store="hdfs"
)
COORDINATORS = {"secret": "c2VjcmV0", "topic_ids": {}}


@pytest.mark.parametrize(
    ("written", "wanted", "sentence"),
    [
        (
            OBSERVERS,
            Identity,
            "F is that of `coordinator observe`, whose groups are on its topics: name a coordinator's",
        ),
        (COORDINATORS, ObservedIdentity, "F is that of `coordinator run`: start with another observe_checkpoint."),
        ({}, Identity, "F cannot be read (Object missing required field `"),
        ([], Identity, "F cannot be read (Expected `object`, got `array`): restore it from a back-up."),
    ],
)
def test_the_checkpoint_of_the_other_query_is_named(written: Any, wanted: type[Sealed], sentence: str) -> None:
    with pytest.raises(CheckpointMismatch) as error:
        decoded(msgspec.json.encode(written), "F", wanted)
    assert str(error.value).startswith(sentence)


OF_BOTH = [
    OBSERVERS,
    Identity(secret="s", topic_ids={}, request_partitions=16, shuffle_partitions=2, state_store="hdfs"),
]


@pytest.mark.parametrize("identity", OF_BOTH)
def test_changed_identity_fails_its_checksum(identity: Sealed) -> None:
    """Also a bit of a value that is valid."""
    data = msgspec.json.encode(identity.sealed)
    assert decoded(data, "F", type(identity)) == identity.sealed
    with pytest.raises(CheckpointMismatch, match="F cannot be read \\(it fails its checksum\\): restore it"):
        decoded(data.replace(b"hdfs", b"hdfq"), "F", type(identity))
