"""Every request in every phase, from every kind of sender: the matrix of protocol.md 3.12, cell by cell (S53).

Written by hand from the tables of protocol.md section 3. A cell is the response, and the group's phase after it.
"""

from collections.abc import Callable
from typing import NamedTuple, get_args

import pytest

from coordinator.base.errors import ErrorCode
from coordinator.common.handler import Subject
from coordinator.messages import requests
from coordinator.messages.consumer_requests import ConsumerGroupDescribe, ConsumerGroupHeartbeat, GroupTopics
from coordinator.messages.heartbeats import Heartbeats
from coordinator.messages.requests import OffsetTopic
from coordinator.shard.handlers import HANDLERS
from tests.coordinator.scenario import Scenario

# -- the phases, each with c1 as leader and c2 as follower, and a pending id: p's --------------------------------------


def absent() -> Scenario:
    return Scenario()


def empty() -> Scenario:
    s = Scenario.stable("c1", "c2").leave("c1", "c2").is_("Empty", generation=3)
    return _handed_out(s)


def preparing() -> Scenario:
    """A group in PreparingRebalance: c1 and c2 are awaited, c3's join is parked."""
    s = _handed_out(Scenario.stable("c1", "c2"))
    return s.join("c3").is_("PreparingRebalance", generation=2)


def completing() -> Scenario:
    """A group in CompletingRebalance: the assignments are awaited, c3's sync is parked."""
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

# -- the requests ------------------------------------------------------------------------------------------------------

Ask = Callable[[Scenario], Scenario]

T0 = {("t", 0): 5}


def of(generation: int, ask: Callable[..., Scenario]) -> Ask:
    """Send a request with the group's generation plus `generation`."""

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
    "list":                           lambda s: s.list_groups(),
    "offset delete, topic is read":   lambda s: s.delete_offsets("admin", {"t": [0, 9]}),
    "offset delete, topic is not":    lambda s: s.delete_offsets("admin", {"u": [0]}),
    "delete group":                   lambda s: s.delete(),
    "rebalance":                      lambda s: s.rebalance(),
    "republish":                      lambda s: s.republish({"t": [0]}),
    "a report about topics":          lambda s: s.topics(OffsetTopic("t", None, None, 0)),
    "expel the leader":               lambda s: s.expel("c1"),
    "expel a follower":               lambda s: s.expel("c2"),
    "expel an unknown id":            lambda s: s.expel("made-up"),
    "expel a pending id":             lambda s: s.expel("p"),
}  # fmt: skip

# The response as Kafka's error number (or "parked"), and the phase after it. A number alone: the phase stays.
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
list                            0 -     0 E        0 P                 0 C                  0 S
offset delete, topic is read    69 -    0 E        86 P                86 C                 86 S
offset delete, topic is not     69 -    0 E        0 P                 0 C                  0 S
delete group                    69 -    0 -        68 P                68 C                 68 S
rebalance                       69 -    0 E        0 P                 0 P                  0 P
republish                       0 -     0 E        0 P                 0 C                  0 S
a report about topics           0 -     0 E        0 P                 0 C                  0 S
expel the leader                69 -    25 E       0 P                 0 P                  0 P
expel a follower                69 -    25 E       0 P                 0 P                  0 P
expel an unknown id             69 -    25 E       25 P                25 C                 25 S
expel a pending id              69 -    0 E        0 P                 0 P                  0 P
"""

# -- the same for static members: l leads, f follows, and r was replaced by r#2 ----------------------------------------


def static_empty() -> Scenario:
    return _handed_out(_statics().leave("l", "f", "r#2").is_("Empty", generation=3))


def static_preparing() -> Scenario:
    """A group in PreparingRebalance: l and f are awaited, the join of r#2 is parked."""
    return _as_static(_handed_out(_statics()), "r#2", topics=["u"]).is_("PreparingRebalance", generation=2)


def static_completing() -> Scenario:
    """A group in CompletingRebalance: the assignments are awaited, the sync of r#2 is parked."""
    s = _statics()
    for name in ("l", "f", "r#2"):
        _as_static(s, name)
    return _handed_out(s.sync("r#2").is_parked()).is_("CompletingRebalance", generation=3)


def static_stable() -> Scenario:
    return _handed_out(_statics())


def _statics() -> Scenario:
    s = Scenario()
    for name in ("l", "f", "r", "l"):
        _as_static(s, name)
    s.sync("l", plan={"l": {"t": [0]}, "f": {"t": [1]}, "r": {"t": [2]}}).sync("f").sync("r")
    return _as_static(s, "r", member_id="", reply_to="another inbox").is_("Stable", generation=2, members="l f r#2")


def _as_static(s: Scenario, name: str, **fields: object) -> Scenario:
    fields.setdefault("group_instance_id", f"i-{name.split('#')[0]}")
    return s.join(name, **{"protocols": ["range", "sticky"], **fields})


STATIC_PHASES = {
    "absent": absent,
    "Empty": static_empty,
    "PreparingRebalance": static_preparing,
    "CompletingRebalance": static_completing,
    "Stable": static_stable,
}


def join_with_instance(name: str, **fields: object) -> Ask:
    """Join with an instance id alone, from another process."""
    return lambda s: _as_static(s, name, member_id="", reply_to="yet another inbox", **fields)


def rejoin(name: str, instance: str | None, **fields: object) -> Ask:
    """Join with an id that is, or was, a member's."""
    return lambda s: _as_static(s, name, member_id=s.ids.get(name, name), group_instance_id=instance, **fields)


def under(instance: str | None, ask: Callable[..., Scenario], generation: int = 0) -> Ask:
    return of(generation, lambda s, **fields: ask(s, group_instance_id=instance, **fields))


def expel(name: str, instance: str | None) -> Ask:
    return lambda s: s.expel(name, group_instance_id=instance)


# "its own": f with i-f; "fenced": r with i-r, which is r#2's; "another's": l with i-f; "nobody's": l with i-x.
STATIC_REQUESTS: dict[str, Ask] = {
    "first join, nobody's instance":  join_with_instance("n"),
    "restart of the leader":          join_with_instance("l"),
    "restart of a follower":          join_with_instance("f"),
    "restart, other subscription":    join_with_instance("f", topics=["u"]),
    "restart, other choice":          join_with_instance("f", protocols=["sticky"]),
    "restart, nothing in common":     join_with_instance("f", protocols=["foo"]),
    "restart, another type":          join_with_instance("f", protocol_type="connect"),
    "restart, session too short":     join_with_instance("f", session_timeout_ms=1),
    "join of the leader":             rejoin("l", "i-l"),
    "join of a follower":             rejoin("f", "i-f"),
    "join of a follower, changed":    rejoin("f", "i-f", topics=["u"]),
    "join of a follower, id alone":   rejoin("f", None),
    "join, fenced":                   rejoin("r", "i-r"),
    "join, fenced, id alone":         rejoin("r", None),
    "join, another's instance":       rejoin("l", "i-f"),
    "join, nobody's instance":        rejoin("l", "i-x"),
    "join, pending id and instance":  rejoin("p", "i-x"),
    "sync of the leader":             under("i-l", sync("l")),
    "sync of a follower":             under("i-f", sync("f")),
    "sync of a follower, id alone":   under(None, sync("f")),
    "sync, fenced":                   under("i-r", sync("r")),
    "sync, fenced, newer generation": under("i-r", sync("r"), +1),
    "sync, fenced, id alone":         under(None, sync("r")),
    "sync, another's instance":       under("i-f", sync("l")),
    "sync, nobody's instance":        under("i-x", sync("l")),
    "sync, no id":                    under("i-f", lambda s, **fields: s.sync("n", member_id="", **fields)),
    "heartbeat":                      under("i-f", heartbeat("f")),
    "heartbeat, id alone":            under(None, heartbeat("f")),
    "heartbeat, older generation":    under("i-f", heartbeat("f"), -1),
    "heartbeat, fenced":              under("i-r", heartbeat("r")),
    "heartbeat, fenced, older":       under("i-r", heartbeat("r"), -1),
    "heartbeat, fenced, id alone":    under(None, heartbeat("r")),
    "heartbeat, another's instance":  under("i-f", heartbeat("l")),
    "heartbeat, nobody's instance":   under("i-x", heartbeat("l")),
    "commit":                         under("i-f", commit("f")),
    "commit, id alone":               under(None, commit("f")),
    "commit, fenced":                 under("i-r", commit("r")),
    "commit, fenced, older":          under("i-r", commit("r"), -1),
    "commit, fenced, id alone":       under(None, commit("r")),
    "commit, another's instance":     under("i-f", commit("l")),
    "commit, nobody's instance":      under("i-x", commit("l")),
    "commit, an instance from outside": lambda s: s.commit_from_outside("tool", T0, group_instance_id="i-f"),
    "leave of the leader":            lambda s: s.leave("l/i-l"),
    "leave of a follower":            lambda s: s.leave("f/i-f"),
    "leave, id alone":                lambda s: s.leave("f"),
    "leave, instance alone":          lambda s: s.remove("i-f"),
    "leave, nobody's instance alone": lambda s: s.remove("i-x"),
    "leave, fenced":                  lambda s: s.leave("r/i-r"),
    "leave, fenced, id alone":        lambda s: s.leave("r"),
    "leave, another's instance":      lambda s: s.leave("l/i-f"),
    "leave, nobody's instance":       lambda s: s.leave("l/i-x"),
    "leave, pending id and instance": lambda s: s.leave("p/i-x"),
    "expel":                          expel("f", "i-f"),
    "expel, id alone":                expel("f", None),
    "expel, instance alone":          expel("", "i-f"),
    "expel, nobody's instance alone": expel("", "i-x"),
    "expel, fenced":                  expel("r", "i-r"),
    "expel, fenced, id alone":        expel("r", None),
    "expel, another's instance":      expel("l", "i-f"),
    "expel, nobody's instance":       expel("l", "i-x"),
}  # fmt: skip

STATIC_TABLE = """
                                absent  Empty      PreparingRebalance  CompletingRebalance  Stable
first join, nobody's instance   0 C     0 C        parked P            parked P             parked P
restart of the leader           0 C     0 C        parked P            parked P             0 S
restart of a follower           0 C     0 C        parked P            parked P             0 S
restart, other subscription     0 C     0 C        parked P            parked P             0 S
restart, other choice           0 C     0 C        parked P            parked P             parked P
restart, nothing in common      0 C     0 C        23 P                23 C                 23 S
restart, another type           0 C     0 C        23 P                23 C                 23 S
restart, session too short      26 -    26 E       26 P                26 C                 26 S
join of the leader              25 -    25 E       parked P            0 C                  parked P
join of a follower              25 -    25 E       parked P            0 C                  0 S
join of a follower, changed     25 -    25 E       parked P            parked P             parked P
join of a follower, id alone    25 -    25 E       parked P            0 C                  0 S
join, fenced                    25 -    25 E       82 P                82 C                 82 S
join, fenced, id alone          25 -    25 E       25 P                25 C                 25 S
join, another's instance        25 -    25 E       82 P                82 C                 82 S
join, nobody's instance         25 -    25 E       25 P                25 C                 25 S
join, pending id and instance   25 -    -1 E       -1 P                -1 C                 -1 S
sync of the leader              25 -    25 E       27 P                0 S                  0 S
sync of a follower              25 -    25 E       27 P                parked C             0 S
sync of a follower, id alone    25 -    25 E       27 P                parked C             0 S
sync, fenced                    25 -    25 E       82 P                82 C                 82 S
sync, fenced, newer generation  25 -    25 E       82 P                82 C                 82 S
sync, fenced, id alone          25 -    25 E       25 P                25 C                 25 S
sync, another's instance        25 -    25 E       82 P                82 C                 82 S
sync, nobody's instance         25 -    25 E       25 P                25 C                 25 S
sync, no id                     25 -    25 E       82 P                82 C                 82 S
heartbeat                       25 -    25 E       27 P                0 C                  0 S
heartbeat, id alone             25 -    25 E       27 P                0 C                  0 S
heartbeat, older generation     25 -    25 E       22 P                22 C                 22 S
heartbeat, fenced               25 -    25 E       82 P                82 C                 82 S
heartbeat, fenced, older        25 -    25 E       82 P                82 C                 82 S
heartbeat, fenced, id alone     25 -    25 E       25 P                25 C                 25 S
heartbeat, another's instance   25 -    25 E       82 P                82 C                 82 S
heartbeat, nobody's instance    25 -    25 E       25 P                25 C                 25 S
commit                          69 -    25 E       0 P                 27 C                 0 S
commit, id alone                69 -    25 E       0 P                 27 C                 0 S
commit, fenced                  69 -    25 E       82 P                82 C                 82 S
commit, fenced, older           69 -    25 E       82 P                82 C                 82 S
commit, fenced, id alone        69 -    25 E       25 P                25 C                 25 S
commit, another's instance      69 -    25 E       82 P                82 C                 82 S
commit, nobody's instance       69 -    25 E       25 P                25 C                 25 S
commit, an instance from outside 0 E    0 E        82 P                82 C                 82 S
leave of the leader             25 -    25 E       0 P                 0 P                  0 P
leave of a follower             25 -    25 E       0 P                 0 P                  0 P
leave, id alone                 25 -    25 E       0 P                 0 P                  0 P
leave, instance alone           25 -    25 E       0 P                 0 P                  0 P
leave, nobody's instance alone  25 -    25 E       25 P                25 C                 25 S
leave, fenced                   25 -    25 E       82 P                82 C                 82 S
leave, fenced, id alone         25 -    25 E       25 P                25 C                 25 S
leave, another's instance       25 -    25 E       82 P                82 C                 82 S
leave, nobody's instance        25 -    25 E       25 P                25 C                 25 S
leave, pending id and instance  25 -    0 E        0 P                 0 P                  0 P
expel                           69 -    25 E       0 P                 0 P                  0 P
expel, id alone                 69 -    25 E       0 P                 0 P                  0 P
expel, instance alone           69 -    25 E       0 P                 0 P                  0 P
expel, nobody's instance alone  69 -    25 E       25 P                25 C                 25 S
expel, fenced                   69 -    25 E       82 P                82 C                 82 S
expel, fenced, id alone         69 -    25 E       25 P                25 C                 25 S
expel, another's instance       69 -    25 E       82 P                82 C                 82 S
expel, nobody's instance        69 -    25 E       25 P                25 C                 25 S
"""


class Cell(NamedTuple):
    begin: Callable[[], Scenario]
    ask: Ask
    phase: str
    request: str
    heard: str
    after: str | None

    def __str__(self) -> str:
        return f"{self.request} when {self.phase}"


def cells(table: str, asks: dict[str, Ask], phases: dict[str, Callable[[], Scenario]]) -> list[Cell]:
    """Yield the cells of a table.

    Behind each request's name stand the response and the phase after it, for each phase.
    """
    _, *rows = table.strip("\n").splitlines()
    found = []
    for row in rows:
        name, *words = row.rsplit(maxsplit=2 * len(phases))
        for phase, heard, after in zip(phases, words[::2], words[1::2], strict=True):
            found.append(Cell(phases[phase], asks[name], phase, name, heard, SHORT[after]))
    assert [cell.request for cell in found[:: len(phases)]] == list(asks), "every request occurs exactly once"
    return found


CELLS = cells(TABLE, REQUESTS, PHASES)
STATIC_CELLS = cells(STATIC_TABLE, STATIC_REQUESTS, STATIC_PHASES)


def heard(s: Scenario) -> str:
    """Return the error number of the latest request's response, or of its entries."""
    asked = s.answers.get(s.latest_request_id)
    if asked is None:
        return "parked"
    (said,) = asked
    entries = {e.code for e in (*getattr(said, "partitions", ()), *getattr(said, "members", ())) if hasattr(e, "code")}
    assert len(entries) <= 1
    return str(entries.pop() if entries and said.code == 0 else said.code)


def test_every_kind_of_request_occurs():
    asked = {type(cell.ask(cell.begin()).asked.popitem()[1][1]) for cell in CELLS if cell.phase == "Stable"}
    of_rules = {requests.SetAccess, requests.DescribeAccess, requests.CheckAccess}
    of_policies = {requests.SetPolicies, requests.DescribePolicies}
    of_drivers = {requests.StopCoordinator}  # `test_stop` has its tests
    of_consumers = {ConsumerGroupHeartbeat, ConsumerGroupDescribe, GroupTopics}
    of_transactions = {requests.TxnOffsetCommit, requests.SettleTransactions}
    of_many = {Heartbeats}  # `test_heartbeats` has their tests
    moves = Subject.MOVES, Subject.SLOTS
    of_moves = {kind for kind, row in HANDLERS.items() if row.subject in moves}  # `moves` has their tables
    of_others = of_rules | of_policies | of_drivers | of_consumers | of_transactions | of_moves | of_many
    assert asked == {*get_args(requests.Request)} - of_others


def test_every_setup_is_in_its_phase():
    for phases in (PHASES, STATIC_PHASES):
        for phase, begin in phases.items():
            s = begin()
            group = s.shard.group("g")
            assert (group.phase.value if group else "absent") == phase
            assert group is None or [*map(s.name, group.hot_state.pending)] == ["p"]


@pytest.mark.parametrize("cell", [*CELLS, *STATIC_CELLS], ids=str)
def test_cell(cell: Cell):
    """S44, S53, S60, S62 to S69, S91, S92, S98, S101, S102, S106, S115, S116, S143; protocol.md 3.2.6, 3.9, 3.10."""
    s = cell.begin()
    before = s.shard.group("g")
    cell.ask(s)
    assert heard(s) == cell.heard
    group = s.shard.group("g")
    assert (group.phase.value if group else None) == cell.after
    if cell.heard not in ("0", "79", "parked") and before is not None:
        assert group is not None
        assert group.members == before.members, "a refused request changes no member"
        assert group.offsets == before.offsets
        assert group.generation_id == before.generation_id
        assert group.hot_state.instances == before.hot_state.instances
        assert group.hot_state.pending == before.hot_state.pending


@pytest.mark.parametrize("cell", [c for c in [*CELLS, *STATIC_CELLS] if c.phase not in ("absent", "Empty")], ids=str)
def test_which_requests_renew_a_session(cell: Cell):
    """S103, S104, S143: which requests renew their member's session at once (protocol.md section 4, first row)."""
    s = cell.begin()
    names = [name for name in ("c1", "c2", "l", "f") if name in s.ids]
    sessions = {name: s.group.hot_state.sessions[s.ids[name]].deadline_ms for name in names}
    cell.ask(s.at(1_000))
    after = {name: s.group.hot_state.sessions.get(s.ids[name]) for name in names}
    renewed = {name for name, session in after.items() if session and session.deadline_ms != sessions[name]}
    assert renewed == RENEWED.get((cell.request, cell.phase), set()) & {*names}
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
    ("sync of the leader", "CompletingRebalance"): {"c1", "l"},  # its own parked sync; the follower has not sent one
    ("sync of the leader", "Stable"): {"c1", "l"},  # protocol.md 10, row 12
    ("sync of a follower", "Stable"): {"c2", "f"},
    ("sync of a follower, id alone", "Stable"): {"f"},
    ("heartbeat", "PreparingRebalance"): {"f"},
    ("heartbeat", "CompletingRebalance"): {"f"},
    ("heartbeat", "Stable"): {"f"},
    ("heartbeat, id alone", "PreparingRebalance"): {"f"},
    ("heartbeat, id alone", "CompletingRebalance"): {"f"},
    ("heartbeat, id alone", "Stable"): {"f"},
    ("commit", "PreparingRebalance"): {"f"},
    ("commit", "Stable"): {"f"},
    ("commit, id alone", "PreparingRebalance"): {"f"},
    ("commit, id alone", "Stable"): {"f"},
}


@pytest.mark.parametrize(("phase", "heard_as"), {"P": "68", "C": "68", "S": "68", "E": "0"}.items())
def test_offset_delete_in_a_group_of_another_type(phase: str, heard_as: str):
    """protocol.md 3.9 row 3: offsets of such a group are not deleted while it has members."""
    s = Scenario(delay_ms=3_000).commit_from_outside("tool", T0).join("c1", protocol_type="connect")
    if phase != "P":
        s.until(3_000)
    if phase in "SE":
        s.sync("c1")
    if phase == "E":
        s.leave("c1")
    s.is_(SHORT[phase]).delete_offsets("admin", {"t": [0]})
    assert heard(s) == heard_as
