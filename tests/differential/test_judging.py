"""The language of conversations, and the comparison of transcripts, without a broker."""

from dataclasses import replace

import pytest

from tests.differential.language import Conversation, Heard, lines_of, parse, unfolded
from tests.differential.ours import Ours
from tests.differential.talk import check, hold
from tests.differential.theirs import RULES
from tests.differential.transcript import Step

STORY = """
join c1            | 0 generation=1
join c2            | parked
sync c1            | 27
join c1            | 0 generation=2 leader=c1, c2 0
leave c2 stranger  | 0/25
"""


def conversation(story: str = STORY) -> Conversation:
    return Conversation("a story", "", tuple(lines_of(story.splitlines())))


def transcript(story: Conversation) -> list[Step]:
    return hold(story, Ours(RULES), theirs=False)


def tampered(steps: list[Step], number: int, old: str, new: str) -> list[Step]:
    """Change one line of a transcript."""
    heard = tuple((to, codes, whole.replace(old, new)) for to, codes, whole in steps[number].heard)
    assert heard != steps[number].heard
    return [*steps[:number], replace(steps[number], heard=heard), *steps[number + 1 :]]


# -- the language ------------------------------------------------------------------------------------------------------


def test_a_line_has_a_request_and_its_responses():
    line = parse("sync c1 plan c1=0,1 c2=none generation=3 | 0, c2 25/0 leader=c1")
    assert (line.verb, line.who, line.words) == ("sync", "c1", ("c1", "plan", "c1=0,1", "c2=none"))
    assert line.options == {"generation": "3"}
    assert line.kafka == (Heard("c1", "0", frozenset()), Heard("c2", "25/0", frozenset({"leader=c1"})))
    assert line.ours == line.kafka


def test_a_difference_has_a_column_for_each_side_and_a_name():
    line = parse("join c1 | kafka: parked | ours: c1 27 | a name")
    assert [heard.codes for heard in (*line.kafka, *line.ours)] == ["", "27"]
    assert line.difference == "a name"
    with pytest.raises(ValueError, match="one column"):
        parse("join c1 | kafka: parked | ours: c1 27")


def test_a_new_member_joins_in_two_steps_by_default():
    lines = lines_of(["join c1 | 0", "join c1 | 0", "join c1 new | 0", "join c2 v=3 | 0", "join c3 instance=i | 0"])
    first = [line.text for line in lines if line.kafka[0].codes == "79"]
    assert first == ["join c1 (for an id)", "join c1 new (for an id)"]


def test_the_client_of_a_line():
    asked = ["leave c2@i2 c3", "leave @i2", "fetch t-0", "commit outside t-0=5", "list"]
    assert [parse(text).who for text in asked] == ["c2", "admin", "admin", "outside", "admin"]


def test_repeated_letters_are_expanded():
    assert [unfolded(text) for text in ("x*3", "é*2", "x", "x*", "2*4")] == ["xxx", "éé", "x", "x*", "2222"]


# -- the comparison ----------------------------------------------------------------------------------------------------


def test_equal_transcripts_pass():
    story = conversation()
    check(story, transcript(story), transcript(story))


TAMPERED = [(1, "generation=1", "generation=2"), (5, "leader=c1", "leader=c2"), (6, "code=25", "code=0")]


@pytest.mark.parametrize(("number", "old", "new"), TAMPERED)
def test_a_difference_in_any_field_is_found(number: int, old: str, new: str):
    steps = transcript(conversation())
    with pytest.raises(AssertionError, match=f"\\+{new}"):
        check(conversation(), steps, tampered(steps, number, old, new))


def test_a_difference_in_the_group_is_found():
    steps = transcript(conversation())
    other = [*steps[:-1], replace(steps[-1], group=steps[-1].group.replace("members=c1", "members=none"))]
    with pytest.raises(AssertionError, match=r"\+members=none"):
        check(conversation(), steps, other)


@pytest.mark.parametrize(
    "line", ["heartbeat c1 | 25", "heartbeat c1 | parked", "heartbeat c1 | 0, c2 0", "heartbeat c1 | 0 generation=1"]
)
def test_both_sides_must_give_the_expected_responses(line: str):
    story = conversation(f"join c1 | 0\n{line}")
    with pytest.raises(AssertionError, match="not as written"):
        check(story, transcript(story), transcript(story))


def test_an_expected_difference_must_occur():
    story = conversation("join c1 | kafka: 0 | ours: 0 | an old difference")
    same = transcript(story)
    with pytest.raises(AssertionError, match="no difference any more: an old difference"):
        check(story, same, same)


def test_a_difference_must_be_as_written():
    story = conversation("join c1 v=3 | kafka: 0 generation=5 | ours: 0 generation=1 | a difference")
    ours = transcript(story)
    check(story, tampered(ours, 0, "generation=1", "generation=5"), ours)
    with pytest.raises(AssertionError, match="not as written, Kafka"):
        check(story, tampered(ours, 0, "generation=1", "generation=6"), ours)
