"""A model of moves between two coordinators, of which every reachable state is visited (moving.md 9).

Two coordinators, 0 and 1, read their own logs in order. A record for the other one is written at least once, in any
order, and perhaps again at any later time. The world has one name, in one slot, and no time.

    commit        a client sends one of two commits, each at most some times, to either coordinator
    release       an operator releases the name; `slot` releases its slot
    cancel        an operator cancels a move at its target; `back` takes it back with evidence from the target's log
    delete        an operator deletes the group

Promises: `OneServes`, `MovedCommitsAreKept`, `NeverNowhere`, `OneFounds`, `NumbersGrow`.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

Record = tuple[Any, ...]

FIRST, SECOND = 4, 8
"""Marks in the data of a group, beside the bits of its commits: which of two groups of one name it is."""


class Side(NamedTuple):
    """The knowledge of one coordinator about the name.

    Args:
        custody: here, sent or away.
        data: The commits and the mark of the group; None without a group.
        number: The highest number that is known of the name.
        waits: The number of the move that is not answered; 0 for none.
        verdicts: Number and verdict of each decided move to this side.
        parts: Number, part and data of each part that has come.
        slot: Whether the slot is its own, and the number of the slot.
    """

    custody: str
    data: int | None = None
    number: int = 0
    waits: int = 0
    verdicts: frozenset[tuple[int, bool]] = frozenset()
    parts: frozenset[tuple[int, int, int | None]] = frozenset()
    slot: tuple[bool, int] = (False, 0)


class World(NamedTuple):
    """Both sides, their unread logs, the records that have to be written, and what may still happen."""

    sides: tuple[Side, Side]
    logs: tuple[tuple[Record, ...], tuple[Record, ...]]
    unwritten: tuple[tuple[int, Record], ...]
    written: frozenset[tuple[int, Record]]
    drawn: tuple[tuple[int, int], ...]
    decided_by: tuple[tuple[int, str], ...]
    acked: int
    left: tuple[int, ...]
    is_deleted: bool


class Bounds(NamedTuple):
    """The events of a world: how often each may happen."""

    commits: tuple[int, int] = (1, 1)
    releases: int = 0
    slots: int = 0
    cancels: int = 0
    refusals: int = 0
    repeats: int = 0
    backs: int = 0
    deletes: int = 0
    parts: int = 1
    has_group: bool = True
    has_twin: bool = False


FIRST_COMMIT, SECOND_COMMIT, RELEASE, SLOT, CANCEL, REFUSE, REPEAT, BACK, DELETE = range(9)

SEEDS: dict[str, tuple[str, str]] = {
    # bug                                                              found in    promise
    "the source serves until it is answered":                          ("one",     "MovedCommitsAreKept"),
    "the target forgets an adoption when the group has moved on":      ("again",   "OneServes"),
    "the target forgets an adoption when the group is deleted":        ("deleted", "OneFounds"),
    "the target does not remember a refusal":                          ("one",     "OneServes"),
    "the target does not remember a cancel":                           ("one",     "OneServes"),
    "a cancel after the adoption is answered refused":                 ("one",     "OneServes"),
    "the source takes every answer for its own":                       ("two",     "OneServes"),
    "the source keeps no state while it waits":                        ("one",     "MovedCommitsAreKept"),
    "the target adopts at the first part":                             ("parts",   "MovedCommitsAreKept"),
    "the source takes back after a timeout":                           ("one",     "OneServes"),
    "an operator takes back without evidence":                         ("back",    "OneServes"),
    "the target counts from its own floor":                            ("three",   "NumbersGrow"),
    "the target adopts over a group that lives there":                 ("twins",   "MovedCommitsAreKept"),
    "a slot goes without the names that are elsewhere":                ("slot",    "MovedCommitsAreKept"),
    "a slot goes with living groups alone while a name is in transit": ("slots",   "NeverNowhere"),
    "a late repeat of a slot counts":                                  ("slots",   "OneServes"),
    "a coordinator creates groups in foreign slots":                   ("slot",    "OneServes"),
}  # fmt: skip
"""The seeded bugs: the world in which each is found, and the promise that finds it."""

WORLDS = {
    "one": Bounds(releases=1, cancels=1, refusals=1, repeats=1),
    "two": Bounds(releases=2, cancels=1, refusals=1),
    "again": Bounds((1, 0), releases=2, repeats=2),
    "parts": Bounds((1, 1), releases=1, repeats=1, parts=2),
    "back": Bounds((1, 0), releases=1, cancels=1, repeats=1, backs=1, parts=2),
    "deleted": Bounds((0, 0), releases=1, cancels=1, repeats=2, deletes=1),
    "twins": Bounds((0, 0), releases=2, cancels=1, repeats=1, has_twin=True),
    "slot": Bounds((1, 1), releases=1, slots=1, repeats=1, has_group=False),
    "slots": Bounds((1, 0), releases=1, slots=2, repeats=1, has_group=False),
    "three": Bounds((0, 0), releases=3),
}
"""Small worlds."""

LARGE_WORLDS = {
    "one": Bounds((2, 2), releases=1, cancels=1, refusals=1, repeats=2),
    "there and back": Bounds((2, 1), releases=2, cancels=1, refusals=1, repeats=1),
    "three": Bounds((1, 1), releases=3, repeats=1, refusals=1),
    "parts": Bounds((1, 1), releases=2, cancels=1, repeats=1, parts=2),
    "back": Bounds((1, 1), releases=2, cancels=1, repeats=1, backs=1),
    "deleted": Bounds((1, 1), releases=2, cancels=1, repeats=1, deletes=1),
    "slots": Bounds((2, 1), releases=1, slots=2, repeats=1, has_group=False),
}


class Broken(Exception):
    """A promise does not hold."""


class Model:
    """The rules, with at most one seeded bug."""

    def __init__(self, bounds: Bounds, bug: str = "") -> None:
        assert not bug or bug in SEEDS
        self.bounds, self.bug = bounds, bug

    def has(self, bug: str) -> bool:
        assert bug in SEEDS
        return self.bug == bug

    def begin(self) -> World:
        b = self.bounds
        first = Side("here", FIRST if b.has_group else None, int(b.has_group), slot=(True, 0))
        second = Side("here", SECOND, 1) if b.has_twin else Side("away")
        left = (*b.commits, b.releases, b.slots, b.cancels, b.refusals, b.repeats, b.backs, b.deletes)
        return World((first, second), ((), ()), (), frozenset(), (), (), 0, left, False)

    # -- events --------------------------------------------------------------------------------------------------------

    def following(self, w: World) -> Iterator[World]:
        """Yield the worlds after each event that may come next."""
        for c in (0, 1):
            if w.logs[c]:
                yield from self.read(w._replace(logs=put(w.logs, c, w.logs[c][1:])), c, w.logs[c][0])
        for each in dict.fromkeys(w.unwritten):
            left = list(w.unwritten)
            left.remove(each)
            yield self.append(w._replace(unwritten=tuple(left), written=w.written | {each}), *each)
        if w.left[REPEAT]:
            for each in w.written:
                yield self.append(spend(w, REPEAT), *each)
        for c in (0, 1):
            if w.left[FIRST_COMMIT]:
                yield self.append(spend(w, FIRST_COMMIT), c, ("commit", 1))
            if w.left[SECOND_COMMIT] and w.acked & 1:
                yield self.append(spend(w, SECOND_COMMIT), c, ("commit", 2))
            for event, kind in ((RELEASE, "release"), (SLOT, "slot"), (DELETE, "delete")):
                if w.left[event]:
                    yield self.append(spend(w, event), c, (kind,))
        for number, source in w.drawn:
            if w.left[CANCEL]:
                yield self.append(spend(w, CANCEL), 1 - source, ("cancel", number))
            is_proved = dict(w.decided_by).get(number) == "cancel"
            if w.left[BACK] and (is_proved or self.has("an operator takes back without evidence")):
                yield self.append(spend(w, BACK), source, ("answer", number, False))
        if self.has("the source takes back after a timeout"):
            for c in (0, 1):
                if w.sides[c].custody == "sent":
                    yield with_side(w, c, w.sides[c]._replace(custody="here", waits=0))

    def append(self, w: World, c: int, record: Record) -> World:
        w = w._replace(logs=put(w.logs, c, (*w.logs[c], record)))
        if not self.bounds.backs or record[0] not in ("adopt", "cancel") or record[1] in dict(w.decided_by):
            return w
        number = record[1]
        came = {each[2] for to, each in w.written if to == c and each[:2] == ("adopt", number)}
        if record[0] == "cancel" or len(came) == self.bounds.parts:
            return w._replace(decided_by=(*w.decided_by, (number, record[0])))
        return w

    # -- records -------------------------------------------------------------------------------------------------------

    def read(self, w: World, c: int, record: Record) -> Iterator[World]:
        """Yield the worlds after a coordinator has read a record."""
        side, kind = w.sides[c], record[0]
        if kind == "adopt":
            yield from self.adopt(w, c, side, record)
        else:
            yield getattr(self, f"on_{kind}")(w, c, side, *record[1:])

    def on_commit(self, w: World, c: int, side: Side, bit: int) -> World:
        serves = side.custody == "here"
        serves |= side.custody == "sent" and self.has("the source serves until it is answered")
        founds = side.custody == "away" and self.has("a coordinator creates groups in foreign slots")
        if not (serves or founds):
            return w
        custody = "here" if founds else side.custody
        return with_side(w, c, side._replace(custody=custody, data=(side.data or 0) | bit))._replace(
            acked=w.acked | bit
        )

    def on_delete(self, w: World, c: int, side: Side) -> World:
        if side.custody != "here" or side.data is None:
            return w
        forgets = self.has("the target forgets an adoption when the group is deleted")
        verdicts = frozenset[tuple[int, bool]]() if forgets else side.verdicts
        side = side._replace(data=None, verdicts=verdicts)
        return with_side(w, c, side)._replace(acked=0, is_deleted=True)

    def on_release(self, w: World, c: int, side: Side) -> World:
        if side.custody == "away":
            return w
        if side.custody == "here":
            number = side.number + 1
            if not self.bounds.has_twin and any(number <= drawn for drawn, _ in w.drawn):
                raise Broken("NumbersGrow")
            side = side._replace(custody="sent", number=number, waits=number)
            w = w._replace(drawn=(*w.drawn, (number, c)))
        masks = [15] if self.bounds.parts == 1 else [1, 14]
        for part, mask in enumerate(masks):
            w = write(w, 1 - c, ("adopt", side.waits, part, None if side.data is None else side.data & mask))
        if self.has("the source keeps no state while it waits"):
            side = side._replace(data=None)
        return with_side(w, c, side)

    def adopt(self, w: World, c: int, side: Side, record: Record) -> Iterator[World]:
        _, number, part, data = record
        if (known := dict(side.verdicts).get(number)) is not None:
            yield write(w, 1 - c, ("answer", number, known))
            return
        forgets = self.has("the target forgets an adoption when the group has moved on")
        if number < side.number and not forgets:
            yield self.refuse(w, c, side, number)
            return
        side = side._replace(parts=side.parts | {(number, part, data)})
        came = [d for n, _, d in side.parts if n == number]
        if len(came) < self.bounds.parts and not self.has("the target adopts at the first part"):
            yield with_side(w, c, side)
            return
        side = side._replace(parts=frozenset(each for each in side.parts if each[0] != number))
        lives = side.custody == "here" and side.data is not None
        if side.custody == "sent" or (lives and not self.has("the target adopts over a group that lives there")):
            yield self.refuse(w, c, side, number)
            return
        if w.left[REFUSE]:
            yield self.refuse(spend(w, REFUSE), c, side, number)
        whole = None if None in came else sum(set(came))
        floor = side.number if self.has("the target counts from its own floor") else max(side.number, number)
        verdicts = side.verdicts if forgets else side.verdicts | {(number, True)}
        side = side._replace(custody="here", data=whole, number=floor, waits=0, verdicts=verdicts)
        yield with_side(write(w, 1 - c, ("answer", number, True)), c, side)

    def refuse(self, w: World, c: int, side: Side, number: int) -> World:
        if not self.has("the target does not remember a refusal"):
            side = side._replace(verdicts=side.verdicts | {(number, False)})
        return with_side(write(w, 1 - c, ("answer", number, False)), c, side)

    def on_cancel(self, w: World, c: int, side: Side, number: int) -> World:
        known = dict(side.verdicts).get(number)
        if known and self.has("a cancel after the adoption is answered refused"):
            known = False
        if known is None:
            side = side._replace(parts=frozenset(each for each in side.parts if each[0] != number))
            if not self.has("the target does not remember a cancel"):
                side = side._replace(verdicts=side.verdicts | {(number, False)})
        return with_side(write(w, 1 - c, ("answer", number, bool(known))), c, side)

    def on_answer(self, w: World, c: int, side: Side, number: int, is_adopted: bool) -> World:
        is_mine = side.waits == number or self.has("the source takes every answer for its own")
        if side.custody != "sent" or not is_mine:
            return w
        if is_adopted:
            return with_side(w, c, side._replace(custody="away", data=None, waits=0))
        return with_side(w, c, side._replace(custody="here", waits=0))

    # -- slots ---------------------------------------------------------------------------------------------------------

    def on_slot(self, w: World, c: int, side: Side) -> World:
        is_own, number = side.slot
        living_alone = self.has("a slot goes with living groups alone while a name is in transit")
        if not is_own or (side.custody == "sent" and not living_alone):
            return w
        knows = side.custody != "here" or side.data is not None or (side.number > 0 and not living_alone)
        is_listed = knows and not self.has("a slot goes without the names that are elsewhere")
        side = side._replace(slot=(False, number + 1))
        if not is_listed:
            side = side._replace(custody="away", data=None)
        return with_side(write(w, 1 - c, ("slots", number + 1, is_listed, side.number)), c, side)

    def on_slots(self, w: World, c: int, side: Side, number: int, is_listed: bool, of_name: int) -> World:
        if number <= side.slot[1] and not self.has("a late repeat of a slot counts"):
            return w
        side = side._replace(slot=(True, max(number, side.slot[1])))
        if not is_listed and side.custody == "away" and of_name >= side.number:
            side = side._replace(custody="here", number=of_name)
        return with_side(w, c, side)

    # -- promises ------------------------------------------------------------------------------------------------------

    def check(self, w: World) -> None:
        """Raise `Broken` if a promise does not hold."""
        serving = [side for side in w.sides if side.custody == "here"]
        is_over = w.logs == ((), ()) and not w.unwritten
        if self.bounds.has_twin:
            for side, mark in zip(w.sides, (FIRST, SECOND), strict=True):
                if side.custody == "away" or not (side.data or 0) & mark:
                    raise Broken("MovedCommitsAreKept")
                if is_over and side.custody != "here":
                    raise Broken("NeverNowhere")
            return
        if len(serving) > 1:
            raise Broken("OneServes")
        if any(w.acked & ~(side.data or 0) for side in serving):
            raise Broken("MovedCommitsAreKept")
        if w.is_deleted and any((side.data or 0) & FIRST for side in serving):
            raise Broken("OneFounds")
        if is_over and len(serving) != 1:
            raise Broken("NeverNowhere")


def put(pair: tuple[Any, Any], c: int, value: Any) -> tuple[Any, Any]:
    return (value, pair[1]) if c == 0 else (pair[0], value)


def with_side(w: World, c: int, side: Side) -> World:
    return w._replace(sides=put(w.sides, c, side))


def write(w: World, to: int, record: Record) -> World:
    return w._replace(unwritten=tuple(sorted((*w.unwritten, (to, record)), key=str)))


def spend(w: World, event: int) -> World:
    return w._replace(left=tuple(n - (each == event) for each, n in enumerate(w.left)))


def explore(model: Model) -> tuple[int, str]:
    """Visit every state, breadth first. Return how many were visited, and the first promise that was broken, or ""."""
    first = model.begin()
    seen, queue = {first}, deque([first])
    while queue:
        w = queue.popleft()
        try:
            model.check(w)
            for after in model.following(w):
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
        except Broken as broken:
            return len(seen), str(broken)
    return len(seen), ""
