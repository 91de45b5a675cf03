"""Tests of the identity of an observer's checkpoint, against that of a coordinator's, without Spark."""

from typing import Any

import msgspec
import pytest

from streaming.observe.identity import ObservedIdentity
from streaming.query.checkpoint.identity import Identity, not_an_identity

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
def test_the_checkpoint_of_the_other_query_is_named(written: Any, wanted: type[Any], sentence: str) -> None:
    data = msgspec.json.encode(written)
    with pytest.raises(msgspec.MsgspecError) as error:
        msgspec.json.decode(data, type=wanted)
    assert str(not_an_identity(data, "F", error.value)).startswith(sentence)
