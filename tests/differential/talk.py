"""Conversations with one side, and the comparison of two transcripts."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from difflib import unified_diff
from threading import Lock
from typing import Protocol, Self

from msgspec import structs

from coordinator.messages.consumer_requests import TopicFact
from coordinator.messages.responses import AnyAnswer, ListGroupsAnswer
from tests.differential.asking import ask
from tests.differential.language import Conversation, Heard, Line
from tests.differential.topics import SHARED, Topics
from tests.differential.transacting import is_to_repeat
from tests.differential.transcript import ClientRequest, Description, Names, Step, codes
from tests.system.waiting import wait_until


class Side(Protocol):
    """A coordinator that answers requests."""

    def ask(self, asked: ClientRequest) -> None:
        """Send a request."""

    def wait(self, ms: int, *, quietly: bool = False) -> None:
        """Wait for an event, which must not come before `ms` are over; if `quietly`, wait `ms` without one."""

    def hear(self, expected: tuple[Heard, ...]) -> list[tuple[ClientRequest, AnyAnswer]]:
        """Return the responses that come now; wait for the `expected` ones."""

    def look(self, group_id: str) -> Description:
        """Describe a group as it is now."""

    def facts(self, names: Iterable[str]) -> list[TopicFact]:
        """Return the ids and numbers of partitions of topics."""

    def change_topic(self, name: str, partitions: int, group_id: str, *, anew: bool) -> None:
        """Create, extend or delete a topic; `anew`, delete and create it. The group has that name."""

    def set(self, group_id: str, settings: Mapping[str, int]) -> None:
        """Change settings of a group, in milliseconds."""


def hold(conversation: Conversation, side: Side, *, theirs: bool) -> list[Step]:
    """Send all lines to one side, each after the responses to the line before, and record the responses."""
    prefix = f"{conversation.slug}.{'kafka' if theirs else 'ours'}"
    names, steps = Names(Topics(conversation.slug, conversation.own_topics), prefix), []
    for fact in side.facts(SHARED):
        names.topics.learn(fact)

    def group_id(name: str) -> str:
        own = f"{conversation.slug}.{name}" if name.strip() and len(name) < 100 else name
        names.groups[own] = name
        return own

    side.look(group_id("g"))
    for number, line in enumerate(conversation.lines, start=1):
        if line.is_time:
            side.wait(int(line.words[0]), quietly=line.verb == "pass")
        elif line.verb == "set":
            side.set(group_id("g"), {name: int(ms) for name, ms in line.options.items()})
        elif line.verb == "topic":
            _change_topic(line, side, names, group_id("g"))
        expected = line.kafka if theirs else line.ours
        if line.is_request:
            heard = _heard(side, line, ask(line, names, number, group_id), expected)
        else:
            heard = side.hear(expected)
        for asked, answer in heard:
            names.learn(asked, answer)
        told = sorted((asked.label, codes(a), names.tell(_own(a, names))) for asked, a in heard)
        steps.append(Step(line.text, tuple(told), names.tell_group(side.look(group_id("g")))))
    return steps


def _heard(
    side: Side, line: Line, request: ClientRequest, expected: tuple[Heard, ...]
) -> list[tuple[ClientRequest, AnyAnswer]]:
    """Send a line's request, and return all responses; repeat it as long as a client would."""
    heard: list[tuple[ClientRequest, AnyAnswer]] = []

    def is_final() -> bool:
        side.ask(request)
        heard[:] = side.hear(expected)
        return not is_to_repeat(line, [codes(answer) for _, answer in heard])

    wait_until(is_final)
    return heard


def _change_topic(line: Line, side: Side, names: Names, group_id: str) -> None:
    name, _, count = line.words[0].partition("=")
    side.change_topic(
        names.topics.full(name), 0 if count == "gone" else int(count), group_id, anew="anew" in line.words
    )
    (fact,) = side.facts([names.topics.full(name)])
    names.topics.learn(fact)


class Transcripts:
    """One side's responses in each conversation. A conversation is held once, even if it is requested several times.

    Args:
        side: Makes a side without data of other conversations.
        at_once: How many conversations are held at a time.
    """

    def __init__(self, side: Callable[[], AbstractContextManager[Side]], *, theirs: bool, at_once: int) -> None:
        self._side, self._theirs = side, theirs
        self._held: dict[str, Future[list[Step]]] = {}
        self._pool = ThreadPoolExecutor(at_once)
        self._alone = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, conversation: Conversation) -> Future[list[Step]]:
        if conversation.slug not in self._held:
            self._held[conversation.slug] = self._pool.submit(self._hold, conversation)
        return self._held[conversation.slug]

    def __getitem__(self, conversation: Conversation) -> list[Step]:
        return self.begin(conversation).result()

    def _hold(self, conversation: Conversation) -> list[Step]:
        with self._alone if conversation.is_about_all else nullcontext(), self._side() as side:
            return hold(conversation, side, theirs=self._theirs)


def _own(answer: AnyAnswer, names: Names) -> AnyAnswer:
    """Remove other conversations' groups from a listing."""
    if not isinstance(answer, ListGroupsAnswer):
        return answer
    return structs.replace(answer, groups=tuple(g for g in answer.groups if g.group_id in names.groups))


def check(conversation: Conversation, kafka: list[Step], ours: list[Step]) -> None:
    """Raise unless both sides gave the same, expected responses. An expected difference must be exactly as written."""
    for line, their_step, our_step in zip(conversation.lines, kafka, ours, strict=True):
        both = f"{conversation.title}\n\nKafka:\n{_text(kafka)}\n\nours:\n{_text(ours)}"
        if line.difference is None:
            assert our_step == their_step, f"{_difference(their_step, our_step)}\n\n{both}"
        else:
            assert our_step != their_step, f"no difference any more: {line.difference}\n\n{both}"
        for side, step, expected in (("Kafka", their_step, line.kafka), ("ours", our_step, line.ours)):
            assert _is_as_expected(step, expected), f"not as written, {side}: {line.text}\n{step}\n\n{both}"


def _is_as_expected(step: Step, expected: tuple[Heard, ...]) -> bool:
    said = sorted((label.split()[0], found) for label, found, _ in step.heard)
    if said != sorted((heard.name.split("#")[0], heard.codes) for heard in expected if heard.name):
        return False
    everything = f"{step.group} {' '.join(whole for *_, whole in step.heard)}".translate(_BRACKETS).split()
    return all(heard.words <= set(everything) for heard in expected)


_BRACKETS = str.maketrans("[];", "   ")


def _difference(kafka: Step, ours: Step) -> str:
    return "\n".join(unified_diff(str(kafka).split(" "), str(ours).split(" "), "Kafka", "ours", n=2, lineterm=""))


def _text(steps: list[Step]) -> str:
    return "\n".join(map(str, steps))
