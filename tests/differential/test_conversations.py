"""Conversations with Kafka's own coordinator and with this one: both must give the same responses."""

import re
from pathlib import Path

import pytest

from tests.differential.differences import DIFFERENCES
from tests.differential.language import Conversation, read
from tests.differential.ours import Ours
from tests.differential.talk import Transcripts, check, hold
from tests.differential.theirs import RULES

FILES = sorted((Path(__file__).parent / "conversations").glob("*.txt"))
EVERY = [conversation for file in FILES for conversation in read(file)]
CONVERSATIONS = [conversation for conversation in EVERY if not conversation.has_transactions]
"""Those that the core can hold alone. Transactions need a gateway and brokers."""


every_conversation = pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda c: c.slug)


@every_conversation
def test_kafka_gives_the_same_responses(conversation: Conversation, kafkas: Transcripts):
    ours = hold(conversation, Ours(RULES), theirs=False)
    check(conversation, kafkas[conversation], ours)


# -- all conversations together ----------------------------------------------------------------------------------------

CODES = {
    # All error codes that Kafka can return to each command. A single broker that is ready never returns these in the
    # classic protocol: 14, 15 and 16, and 28, which belongs to other requests.
    "join": {-1, 0, 23, 24, 25, 26, 79, 81, 82},
    "sync": {0, 22, 23, 24, 25, 27, 82},
    "heartbeat": {0, 22, 24, 25, 27, 82},
    "leave": {0, 24, 25, 82},
    "commit": {0, 3, 12, 22, 25, 27, 35, 69, 82, 100, 113},
    "fetch": {-1, 0, 22, 25, 113},
    "describe": {0, 69},
    "list": {0},
    "delete": {0, 68, 69},
    "forget": {0, 3, 24, 68, 69, 86},
    "beat": {0, 25, 42, 69, 81, 82, 110, 111, 112, 128},
    "describe-consumer": {0, 24, 69},
}


def test_every_error_code_occurs():
    heard: dict[str, set[int]] = {verb: set() for verb in CODES}
    for line in (line for conversation in CONVERSATIONS for line in conversation.lines if line.is_request):
        own = {int(code) for answer in line.kafka if answer.name == line.who for code in answer.codes.split("/")}
        heard[line.verb] |= own
    assert heard == CODES


def test_every_difference_occurs_and_is_explained():
    shown = {line.difference for conversation in CONVERSATIONS for line in conversation.lines}
    assert shown - {None} == set(DIFFERENCES)


def test_every_difference_is_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert [name for name in DIFFERENCES if f"\n| {name} | " not in page] == []


def test_every_conversation_has_a_group_of_its_own():
    slugs = [conversation.slug for conversation in CONVERSATIONS]
    assert len(set(slugs)) == len(slugs)


@every_conversation
def test_a_conversation_names_its_source(conversation: Conversation):
    assert re.search(r"\b([SW]\d+|(protocol|next-generation)\.md \d)", conversation.proves), (
        "name a walkthrough, a row or a section"
    )
