"""One group, random conversations: Hypothesis chooses the requests, and every checker of `invariants` checks each step.

Clients here follow no rules. They join twice, use each other's instance ids, sync with assignments of others, claim
other generations, repeat old requests, and stop sending. An operator expels, rebalances and deletes at any time. In the
end every request is answered and the group is forgotten.
"""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from coordinator.messages.requests import JoinGroup
from tests.coordinator.scenario import Scenario

names = st.sampled_from(["ana", "bo", "cy", "di"])
instances = st.sampled_from(["i1", "i2", ""])
maybe_instances = st.one_of(st.none(), instances)
inboxes = st.sampled_from([None, "another inbox"])
skipping = st.booleans()
sessions_ms = st.sampled_from([6_000, 10_000, 60_000])
rebalances_ms = st.sampled_from([-1, 0, 1_000, 10_000, 120_000])
offers = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range"), ("roundrobin",)])
off_by = st.sampled_from([0, 0, 0, 0, -1, 1])
waits_ms = st.sampled_from([0, 1, 500, 2_999, 3_000, 6_000, 10_000, 60_000])


class Conversations(RuleBasedStateMachine):
    """The requests of clients and operators, and the passing of time."""

    @initialize(delay_ms=st.sampled_from([0, 0, 3_000]), size=st.sampled_from([2, 3, 10]))
    def begin(self, delay_ms: int, size: int) -> None:
        bounds = {"group_max_size": size, "offsets_retention_ms": 90_000, "offset_metadata_max_bytes": 2}
        self.s = Scenario(delay_ms=delay_ms, **bounds).at(1_790_000_000_000)
        self.is_away = False

    @property
    def generation(self) -> int:
        group = self.s.shard.group("g")
        return group.generation_id if group else 0

    def inbox(self, name: str) -> str:
        """Return the mailbox of the process that has a name's id, which may differ from its first mailbox."""
        group = self.s.shard.group("g")
        member = group.members.get(self.s.ids.get(name, "")) if group else None
        return member.reply_to if member else f"{name.split('#')[0]}'s inbox"

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
            reply_to=self.inbox(name),
        )

    @rule(name=names)
    def join_as_before(self, name: str) -> None:
        earlier = [r for n, r in self.s.asked.values() if n == name and isinstance(r, JoinGroup)]
        if earlier:
            offered, latest = earlier[-1].protocols, earlier[-1]
            timeouts = {"session_timeout_ms": latest.session_timeout_ms, "rebalance_timeout_ms": 10_000}
            self.s.join(name, protocols_as_they_are=offered, reply_to=self.inbox(name), **timeouts)

    @rule(name=names)
    def join_anew(self, name: str) -> None:
        self.s.join(name, member_id="")

    # -- members with an instance id -----------------------------------------------------------------------------------

    @rule(name=names, instance=instances, inbox=inboxes, session_ms=sessions_ms, rebalance_ms=rebalances_ms,
          protocols=offers, topics=st.sampled_from([("t",), ("t", "u")]), skips=skipping)  # fmt: skip
    def join_as_static(self, name, instance, inbox, session_ms, rebalance_ms, protocols, topics, skips) -> None:
        self.s.join(
            name,
            member_id="",
            group_instance_id=instance,
            reply_to=inbox or f"{name}'s inbox",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocols=protocols,
            topics=topics,
            supports_skipping_assignment=skips,
        )

    @rule(instance=instances, inbox=inboxes, skips=skipping, rebalance_ms=rebalances_ms)
    def restart(self, instance: str, inbox: str | None, skips: bool, rebalance_ms: int) -> None:
        group = self.s.shard.group("g")
        if group and instance in group.hot_state.instances:
            member = group.members[group.hot_state.instances[instance]]
            self.s.join(
                member.client_id,
                member_id="",
                group_instance_id=instance,
                reply_to=inbox or f"{member.client_id}'s inbox",
                protocols_as_they_are=member.protocols,
                rebalance_timeout_ms=rebalance_ms,
                supports_skipping_assignment=skips,
            )

    @rule(data=st.data(), instance=maybe_instances, ask=st.sampled_from(["join", "sync", "heartbeat"]))
    def under_any_id(self, data: st.DataObject, instance: str | None, ask: str) -> None:
        name = data.draw(st.sampled_from(["nobody", *self.s.ids]))
        getattr(self.s, ask)(name, group_instance_id=instance, reply_to=self.inbox(name))

    @rule()
    def everybody_heartbeats(self) -> None:
        group = self.s.shard.group("g")
        for member in list(group.members.values()) if group else ():
            fields = {"group_instance_id": member.group_instance_id, "generation_id": group.generation_id}
            self.s.heartbeat(self.s.name(member.member_id), **fields)

    @rule(data=st.data(), some=st.lists(maybe_instances, min_size=1, max_size=3))
    def leave_together(self, data: st.DataObject, some: list[str | None]) -> None:
        who = st.sampled_from(["", "nobody", *self.s.ids])
        entries = [(data.draw(who), instance) for instance in some]
        self.s.leave(*(name if instance is None else f"{name}/{instance}" for name, instance in entries))

    # -- an operator ---------------------------------------------------------------------------------------------------

    @rule(data=st.data(), instance=maybe_instances)
    def expel(self, data: st.DataObject, instance: str | None) -> None:
        self.s.expel(data.draw(st.sampled_from(["", "nobody", *self.s.ids])), group_instance_id=instance)

    @rule()
    def rebalance(self) -> None:
        self.s.rebalance(reason="why not")

    @rule(partitions=st.lists(st.integers(0, 2), max_size=3), group=st.booleans())
    def republish(self, partitions: list[int], group: bool) -> None:
        self.s.republish({"t": partitions, "v": [0]}, group=group)

    @rule()
    def delete(self) -> None:
        self.s.delete()

    @rule(topic=st.sampled_from("tuv"), partitions=st.lists(st.integers(0, 2), min_size=1, max_size=3))
    def delete_offsets(self, topic: str, partitions: list[int]) -> None:
        self.s.delete_offsets("admin", {topic: partitions})

    @rule(states=st.sampled_from([(), ("stable",), ("Empty", "PreparingRebalance")]))
    def list_groups(self, states: tuple[str, ...]) -> None:
        self.s.list_groups(states=states)

    # -- assignments and leaves ----------------------------------------------------------------------------------------

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
            name = self.s.name(member.member_id)
            self.s.join(name, protocols_as_they_are=member.protocols, reply_to=self.inbox(name))

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

    # -- time and faults -----------------------------------------------------------------------------------------------

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
        """I6, I11: after the last request, every request is answered and the group is forgotten."""
        if not hasattr(self, "s"):
            return
        if self.is_away:
            self.s.back(self.s.now_ms)
        latest_ms = max((g.hot_state.now_ms for g in [self.s.shard.group("g")] if g), default=0)
        self.s.until(max(latest_ms, self.s.now_ms) + 2_000_000).is_gone()
        unheard = self.s.asked.keys() - self.s.answers.keys()
        assert not unheard, f"never answered: {unheard}"


RUNS, STEPS = (2_000, 100) if "NIGHTLY" in os.environ else (150, 40)
"""The number of runs, and the largest number of steps in each; `make nightly` has more."""

Conversations.TestCase.settings = settings(
    max_examples=RUNS, stateful_step_count=STEPS, deadline=None, derandomize=True
)
test_any_conversation = Conversations.TestCase
