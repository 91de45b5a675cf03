"""Every request in every phase, from everybody who may send it: the matrix of protocol.md 3.12, cell by cell (S53).

Written by hand from the tables of protocol.md section 3. A cell is what the asker hears, and where the group is then.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from coordinator.errors import ErrorCode
from tests.coordinator.scenario import Scenario

# -- the phases, each with c1 as leader and c2 as follower, and an id that was handed out: p's -----------------------


def absent() -> Scenario:
    return Scenario()


def empty() -> Scenario:
    s = Scenario.stable("c1", "c2").leave("c1", "c2").is_("Empty", generation=3)
    return _handed_out(s)


def preparing() -> Scenario:
    """c1 and c2 are awaited, c3's join is parked."""
    s = _handed_out(Scenario.stable("c1", "c2"))
    return s.join("c3").is_("PreparingRebalance", generation=2)


def completing() -> Scenario:
    """The plan is awaited, and c3's sync is parked."""
    s = Scenario.joined("c1", "c2", "c3")
    return _handed_out(s.sync("c3")).is_("CompletingRebalance", generation=2)


def stable() -> Scenario:
    return _handed_out(Scenario.stable("c1", "c2", "c3")).is_("Stable", generation=2)


def _handed_out(s: Scenario) -> Scenario:
    return s.join("p", require_known_member_id=True).hears(ErrorCode.MEMBER_ID_REQUIRED)


PHASES = {
    "absent": absent,
    "Empty": empty,
    "PreparingRebalance": preparing,
    "CompletingRebalance": completing,
    "Stable": stable,
}
SHORT = {"-": None, "E": "Empty", "P": "PreparingRebalance", "C": "CompletingRebalance", "S": "Stable"}

# -- what is asked -----------------------------------------------------------------------------------------------------

Ask = Callable[[Scenario], Scenario]

T0 = {("t", 0): 5}


def of(generation: int, ask: Callable[..., Scenario]) -> Ask:
    """Ask with the group's generation plus `generation`."""

    def asking(s: Scenario) -> Scenario:
        group = s.shard.group("g")
        return ask(s, generation_id=(group.generation_id if group else 2) + generation)

    return asking


def sync(name: str) -> Callable[..., Scenario]:
    return lambda s, **fields: s.sync(name, **fields)


def heartbeat(name: str) -> Callable[..., Scenario]:
    return lambda s, **fields: s.heartbeat(name, **fields)


def commit(name: str) -> Callable[..., Scenario]:
    return lambda s, **fields: s.commit(name, T0, **fields)


REQUESTS: dict[str, Ask] = {
    "first join, asks for an id":     lambda s: s.join("n", require_known_member_id=True),
    "first join, added at once":      lambda s: s.join("n"),
    "join of a pending id":           lambda s: s.join("p", member_id=s.ids.get("p", "p")),
    "join of an unknown id":          lambda s: s.join("n", member_id="made-up"),
    "join of the leader, same":       lambda s: s.join("c1", member_id=s.ids.get("c1", "c1")),
    "join of a follower, same":       lambda s: s.join("c2", member_id=s.ids.get("c2", "c2")),
    "join of the leader, changed":    lambda s: s.join("c1", member_id=s.ids.get("c1", "c1"), topics=["u"]),
    "join of a follower, changed":    lambda s: s.join("c2", member_id=s.ids.get("c2", "c2"), topics=["u"]),
    "join of nobody's protocol":      lambda s: s.join("n", protocols=["foo"]),
    "join of another type":           lambda s: s.join("n", protocol_type="connect"),
    "sync of the leader":             of(0, sync("c1")),
    "sync of a follower":             of(0, sync("c2")),
    "sync of an older generation":    of(-1, sync("c2")),
    "sync of a newer generation":     of(+1, sync("c2")),
    "sync of an unknown id":          of(0, sync("made-up")),
    "sync of a pending id":           of(0, sync("p")),
    "heartbeat of the leader":        of(0, heartbeat("c1")),
    "heartbeat of a follower":        of(0, heartbeat("c2")),
    "heartbeat, older generation":    of(-1, heartbeat("c2")),
    "heartbeat, newer generation":    of(+1, heartbeat("c2")),
    "heartbeat of an unknown id":     of(0, heartbeat("made-up")),
    "heartbeat of a pending id":      of(0, heartbeat("p")),
    "leave of the leader":            lambda s: s.leave("c1"),
    "leave of a follower":            lambda s: s.leave("c2"),
    "leave of an unknown id":         lambda s: s.leave("made-up"),
    "leave of a pending id":          lambda s: s.leave("p"),
    "commit of the leader":           of(0, commit("c1")),
    "commit of a follower":           of(0, commit("c2")),
    "commit of an older generation":  of(-1, commit("c2")),
    "commit of a newer generation":   of(+1, commit("c2")),
    "commit of an unknown id":        of(0, commit("made-up")),
    "commit of a pending id":         of(0, commit("p")),
    "commit from outside":            lambda s: s.commit_from_outside("tool", T0),
    "commit, id and no generation":   lambda s: s.commit("made-up", T0, generation_id=-1),
    "commit, generation and no id":   of(0, lambda s, **fields: s.commit("n", T0, member_id="", **fields)),
    "commit of nothing":              lambda s: s.commit("made-up", {}, generation_id=7),
    "fetch":                          lambda s: s.fetch("made-up", {"t": [0]}),
    "describe":                       lambda s: s.describe(),
}  # fmt: skip

# What is heard, as Kafka's number (or "parked"), and the phase after it. 0, 27 and so on with nothing else: no change.
TABLE = """
                                absent  Empty      PreparingRebalance  CompletingRebalance  Stable
first join, asks for an id      79 E    79 E       79 P                79 C                 79 S
first join, added at once       0 C     0 C        parked P            parked P             parked P
join of a pending id            25 -    0 C        parked P            parked P             parked P
join of an unknown id           25 -    25 E       25 P                25 C                 25 S
join of the leader, same        25 -    25 E       parked P            0 C                  parked P
join of a follower, same        25 -    25 E       parked P            0 C                  0 S
join of the leader, changed     25 -    25 E       parked P            parked P             parked P
join of a follower, changed     25 -    25 E       parked P            parked P             parked P
join of nobody's protocol       0 C     0 C        23 P                23 C                 23 S
join of another type            0 C     0 C        23 P                23 C                 23 S
sync of the leader              25 -    25 E       27 P                0 S                  0 S
sync of a follower              25 -    25 E       27 P                parked C             0 S
sync of an older generation     25 -    25 E       22 P                22 C                 22 S
sync of a newer generation      25 -    25 E       22 P                22 C                 22 S
sync of an unknown id           25 -    25 E       25 P                25 C                 25 S
sync of a pending id            25 -    25 E       25 P                25 C                 25 S
heartbeat of the leader         25 -    25 E       27 P                0 C                  0 S
heartbeat of a follower         25 -    25 E       27 P                0 C                  0 S
heartbeat, older generation     25 -    25 E       22 P                22 C                 22 S
heartbeat, newer generation     25 -    25 E       22 P                22 C                 22 S
heartbeat of an unknown id      25 -    25 E       25 P                25 C                 25 S
heartbeat of a pending id       25 -    25 E       25 P                25 C                 25 S
leave of the leader             25 -    25 E       0 P                 0 P                  0 P
leave of a follower             25 -    25 E       0 P                 0 P                  0 P
leave of an unknown id          25 -    25 E       25 P                25 C                 25 S
leave of a pending id           25 -    0 E        0 P                 0 P                  0 P
commit of the leader            69 -    25 E       0 P                 27 C                 0 S
commit of a follower            69 -    25 E       0 P                 27 C                 0 S
commit of an older generation   69 -    25 E       22 P                22 C                 22 S
commit of a newer generation    69 -    25 E       22 P                22 C                 22 S
commit of an unknown id         69 -    25 E       25 P                25 C                 25 S
commit of a pending id          69 -    25 E       25 P                25 C                 25 S
commit from outside             0 E     0 E        25 P                25 C                 25 S
commit, id and no generation    0 E     0 E        25 P                25 C                 25 S
commit, generation and no id    69 -    25 E       25 P                25 C                 25 S
commit of nothing               0 -     0 E        0 P                 0 C                  0 S
fetch                           0 -     0 E        0 P                 0 C                  0 S
describe                        0 -     0 E        0 P                 0 C                  0 S
"""


class Cell(NamedTuple):
    phase: str
    request: str
    heard: str
    after: str | None

    def __str__(self) -> str:
        return f"{self.request} when {self.phase}"


def cells() -> list[Cell]:
    _, *rows = TABLE.strip("\n").splitlines()
    found = []
    for row in rows:
        request, words = row[:32].strip(), row[32:].split()
        assert len(words) == 2 * len(PHASES), row
        for phase, heard, after in zip(PHASES, words[::2], words[1::2], strict=True):
            found.append(Cell(phase, request, heard, SHORT[after]))
    return found


def heard(s: Scenario) -> str:
    """What the latest request heard, as a number: of its entries, where it has some."""
    asked = s.answers.get(s.latest_request_id)
    if asked is None:
        return "parked"
    (said,) = asked
    entries = {e.code for e in (*getattr(said, "partitions", ()), *getattr(said, "members", ())) if hasattr(e, "code")}
    assert len(entries) <= 1
    return str(entries.pop() if entries and said.code == 0 else said.code)


def test_no_request_is_left_out():
    assert {cell.request for cell in cells()} == set(REQUESTS)


@pytest.mark.parametrize("cell", cells(), ids=str)
def test_cell(cell: Cell):
    """S53, S60, S62 to S69, S91, S92, S98, S101, S102, S106, S115, S116, S143."""
    s = PHASES[cell.phase]()
    before = s.shard.group("g")
    REQUESTS[cell.request](s)
    assert heard(s) == cell.heard
    group = s.shard.group("g")
    assert (group.phase.value if group else None) == cell.after
    if cell.heard not in ("0", "79", "parked") and before is not None:
        assert group is not None
        assert group.members == before.members, "a refusal changes no member"
        assert group.offsets == before.offsets
        assert group.generation_id == before.generation_id


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("phase", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_what_counts_as_a_sign_of_life(phase: str, request_name: str):
    """S103, S104, S143: which requests renew their member's session at once (protocol.md section 4, first row)."""
    s = PHASES[phase]()
    sessions = {name: s.group.vitals.sessions[s.ids[name]].deadline_ms for name in ("c1", "c2")}
    REQUESTS[request_name](s.at(1_000))
    after = {name: s.group.vitals.sessions.get(s.ids[name]) for name in ("c1", "c2")}
    renewed = {name for name, session in after.items() if session and session.deadline_ms != sessions[name]}
    assert renewed == RENEWED.get((request_name, phase), set())
    assert {after[name].deadline_ms for name in renewed} <= {11_000}


RENEWED = {
    # a request ...              when ...                renews the sessions of ...
    ("heartbeat of the leader", "PreparingRebalance"): {"c1"},
    ("heartbeat of the leader", "CompletingRebalance"): {"c1"},
    ("heartbeat of the leader", "Stable"): {"c1"},
    ("heartbeat of a follower", "PreparingRebalance"): {"c2"},
    ("heartbeat of a follower", "CompletingRebalance"): {"c2"},
    ("heartbeat of a follower", "Stable"): {"c2"},
    ("commit of the leader", "PreparingRebalance"): {"c1"},
    ("commit of the leader", "Stable"): {"c1"},
    ("commit of a follower", "PreparingRebalance"): {"c2"},
    ("commit of a follower", "Stable"): {"c2"},
    ("sync of the leader", "CompletingRebalance"): {"c1"},  # its own parked sync is answered; c2 has not asked
    ("sync of the leader", "Stable"): {"c1"},  # protocol.md 10, row 12
    ("sync of a follower", "Stable"): {"c2"},
}
