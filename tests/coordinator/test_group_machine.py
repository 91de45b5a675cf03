"""One group, any conversation: Hypothesis talks, and every promise of `invariants` is checked after every step.

Clients here keep no rules: they join twice, sync with plans that are not theirs, claim other generations, send old
requests again, and fall silent. Whatever they do, in the end everybody is answered and the group is forgotten.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coordinator.requests import JoinGroup
from tests.coordinator.scenario import Scenario

names = st.sampled_from(["ana", "bo", "cy", "di"])
sessions_ms = st.sampled_from([6_000, 10_000, 60_000])
rebalances_ms = st.sampled_from([-1, 0, 1_000, 10_000, 120_000])
offers = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("roundrobin",)])
off_by = st.sampled_from([0, 0, 0, 0, -1, 1])
waits_ms = st.sampled_from([0, 1, 500, 2_999, 3_000, 6_000, 10_000, 60_000])


class Conversations(RuleBasedStateMachine):
    """What clients may say, and time."""

    @initialize(delay_ms=st.sampled_from([0, 0, 3_000]), size=st.sampled_from([2, 3, 10]))
    def begin(self, delay_ms: int, size: int) -> None:
        bounds = {"group_max_size": size, "offsets_retention_ms": 90_000, "offset_metadata_max_bytes": 2}
        self.s = Scenario(delay_ms=delay_ms, **bounds)
        self.is_away = False

    @property
    def generation(self) -> int:
        group = self.s.shard.group("g")
        return group.generation_id if group else 0

    # -- membership ----------------------------------------------------------------------------------------------------

    @rule(name=names, two_step=st.booleans(), session_ms=sessions_ms, rebalance_ms=rebalances_ms, protocols=offers,
          topics=st.sampled_from([("t",), ("t", "u")]))  # fmt: skip
    def join(self, name, two_step, session_ms, rebalance_ms, protocols, topics) -> None:
        self.s.join(
            name,
            require_known_member_id=two_step,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocols=protocols,
            topics=topics,
        )

    @rule(name=names)
    def join_as_before(self, name: str) -> None:
        earlier = [r for n, r in self.s.asked.values() if n == name and isinstance(r, JoinGroup)]
        if earlier:
            offered, latest = earlier[-1].protocols, earlier[-1]
            timeouts = {"session_timeout_ms": latest.session_timeout_ms, "rebalance_timeout_ms": 10_000}
            self.s.join(name, protocols_as_they_are=offered, **timeouts)

    @rule(name=names)
    def join_anew(self, name: str) -> None:
        self.s.join(name, member_id="")

    @rule(name=names, off=off_by, owners=st.lists(names, max_size=3))
    def sync(self, name: str, off: int, owners: list[str]) -> None:
        plan = {owner: {"t": [partition]} for partition, owner in enumerate(owners)}
        self.s.sync(name, plan=plan, generation_id=self.generation + off)

    @rule()
    def everybody_syncs(self) -> None:
        group = self.s.shard.group("g")
        for member_id in group.members if group else ():
            self.s.sync(self.s.name(member_id), plan={}, generation_id=group.generation_id)

    @rule()
    def everybody_joins(self) -> None:
        group = self.s.shard.group("g")
        for member in list(group.members.values()) if group else ():
            self.s.join(self.s.name(member.member_id), protocols_as_they_are=member.protocols)

    @rule(name=names, off=off_by)
    def heartbeat(self, name: str, off: int) -> None:
        self.s.heartbeat(name, generation_id=self.generation + off)

    @rule(some=st.lists(names, min_size=1, max_size=3))
    def leave(self, some: list[str]) -> None:
        self.s.leave(*some)

    # -- offsets -------------------------------------------------------------------------------------------------------

    @rule(name=names, off=off_by, partition=st.integers(0, 2), offset=st.integers(0, 9),
          metadata=st.sampled_from([None, "ok", "long"]), term_ms=st.sampled_from([-1, -1, 0, 5_000]))  # fmt: skip
    def commit(self, name, off, partition, offset, metadata, term_ms) -> None:
        fields = {"metadata": metadata, "retention_ms": term_ms, "generation_id": self.generation + off}
        self.s.commit(name, {("t", partition): offset, ("u", 0): offset}, **fields)

    @rule(offset=st.integers(0, 9))
    def commit_from_outside(self, offset: int) -> None:
        self.s.commit_from_outside("tool", {("v", 0): offset})

    @rule()
    def look(self) -> None:
        self.s.fetch("reader").fetch("reader", {"t": [0, 1, 2], "u": [0]}).describe()

    # -- time and trouble ----------------------------------------------------------------------------------------------

    @rule(wait_ms=waits_ms)
    def time_passes(self, wait_ms: int) -> None:
        self.s.until(self.s.now_ms + wait_ms)

    @rule(back_ms=waits_ms)
    def the_brokers_clock_goes_back(self, back_ms: int) -> None:
        self.s.at(self.s.now_ms - back_ms)

    @rule(data=st.data())
    def an_old_request_comes_again(self, data: st.DataObject) -> None:
        if self.s.asked:
            name, request = data.draw(st.sampled_from(list(self.s.asked.values())))
            self.s.send(name, request)

    @precondition(lambda self: not self.is_away)
    @rule()
    def the_coordinator_goes_away(self) -> None:
        self.s.away()
        self.is_away = True

    @precondition(lambda self: self.is_away)
    @rule(wait_ms=waits_ms)
    def the_coordinator_comes_back(self, wait_ms: int) -> None:
        self.s.back(self.s.now_ms + wait_ms)
        self.is_away = False

    def teardown(self) -> None:
        """I6, I11: when nobody says anything more, everybody has been answered and the group goes."""
        if not hasattr(self, "s"):
            return
        if self.is_away:
            self.s.back(self.s.now_ms)
        latest_ms = max((g.vitals.now_ms for g in [self.s.shard.group("g")] if g), default=0)
        self.s.until(max(latest_ms, self.s.now_ms) + 2_000_000).is_gone()
        unheard = self.s.asked.keys() - self.s.answers.keys()
        assert not unheard, f"never answered: {unheard}"


Conversations.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, derandomize=True)
test_any_conversation = Conversations.TestCase
