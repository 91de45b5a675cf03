"""A group under policies that a real shard writes, with clients that answer as Kafka's clients do.

`deployed` plays one life: a deploy that leaves first and one that surges, a member that dies and has no successor, a
freeze in which a seat is adopted, newcomers that come together, and a client that comes and goes. `converse_seated`
plays a random one.
"""

import random
from typing import Any

from coordinator.base.consumer_protocol import Subscription, write_assignment, write_subscription
from coordinator.base.policies import Freeze, Policy, Quarantine, Settle, Succession
from coordinator.messages.heartbeats import Heartbeat
from coordinator.messages.requests import (
    Assignment,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Protocol,
    RebalanceGroup,
    SetPolicies,
    SyncGroup,
)
from coordinator.messages.responses import HeartbeatAnswer, JoinGroupAnswer, RebalanceNotice, Reply
from tests.streaming.views.written import PARTITIONS, WrittenTopics

S = 1_000
SESSION_MS = 10 * S


class SeatedTopics(WrittenTopics):
    """A coordinator's topics, and the clients of the group `g`, which share the partitions of `t` by range.

    Attributes:
        members: By name, the member id of each client that runs.
    """

    def __init__(self, now_ms: int = 1_000_000) -> None:
        super().__init__(["g"], now_ms)
        self.members: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.name_of: dict[str, str] = {}
        self.who: dict[str, dict[str, str]] = {}
        self.joins: dict[str, dict[str, Any]] = {}

    def policies(self, *policies: Policy) -> None:
        """Replace the policies."""
        self.ask(SetPolicies, "", made_ms=self.now_ms, policies=policies)
        self.settle()

    def start(self, *names: str, **fields: Any) -> None:
        """Start clients; each one's client id is its name without the digits."""
        for name in names:
            self.members[name] = ""
            host = fields.get("client_host", f"/{name}")
            self.who[name] = {"client_id": name.rstrip("0123456789"), "client_host": host}
            self.joins[name] = fields
            self._join(name)
        self.settle()

    def stop(self, *names: str) -> None:
        """Stop clients, which leave their group."""
        for name in names:
            members = (Leaving(self.members.pop(name), None, "closed"),)
            self.ask(LeaveGroup, "g", members=members, **self.who[name])
        self.settle()

    def kill(self, *names: str) -> None:
        """Stop clients without a word."""
        for name in names:
            del self.members[name]

    def wait(self, wait_ms: int, step_ms: int = 2 * S) -> None:
        """Advance the time, with the heartbeats of all clients."""
        until_ms = self.now_ms + wait_ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + step_ms)
            for name, member_id in list(self.members.items()):
                beat = {"generation_id": self.generations.get(name, -1), "member_id": member_id}
                self.name_of[self.ask(Heartbeat, "g", **beat, **self.who[name])] = name
            self.settle()

    def rebalance(self) -> None:
        """Request a rebalance, as an operator."""
        self.ask(RebalanceGroup, "g", reason="a drill")
        self.settle()

    def settle(self) -> None:
        """Run batches until no client has anything to answer."""
        while True:
            answers = [output.answer for output in self.batch() if isinstance(output, Reply)]
            if not sum(self._answer(answer) for answer in answers):
                return
            self.now_ms += 50

    def _join(self, name: str) -> None:
        wanted: dict[str, Any] = {
            "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 60 * S, "protocol_type": "consumer",
            "protocols": (Protocol("range", write_subscription(Subscription(("t",)))),),
            "require_known_member_id": False, **self.who[name], **self.joins[name],
        }  # fmt: skip
        self.name_of[self.ask(JoinGroup, "g", member_id=self.members[name], **wanted)] = name

    def _answer(self, answer: Any) -> bool:
        """Answer as a client does, and return whether it sends something."""
        name = self.name_of.get(answer.request_id or "")
        if isinstance(answer, RebalanceNotice):
            name = next((each for each, member_id in self.members.items() if member_id == answer.member_id), None)
        if name not in self.members:
            return False
        if isinstance(answer, JoinGroupAnswer) and not answer.code:
            self._sync(name, answer)
            return True
        if isinstance(answer, JoinGroupAnswer) and answer.error == "MEMBER_ID_REQUIRED":
            self.members[name] = answer.member_id
            self._join(name)
            return True
        is_told = isinstance(answer, HeartbeatAnswer) and answer.error == "REBALANCE_IN_PROGRESS"
        if is_told or isinstance(answer, RebalanceNotice):
            self._join(name)
            return True
        return False

    def _sync(self, name: str, answer: JoinGroupAnswer) -> None:
        self.members[name], self.generations[name] = answer.member_id, answer.generation_id
        ids = [member.member_id for member in answer.members]
        plan = tuple(
            Assignment(member_id, write_assignment({"t": [*range(PARTITIONS)[n :: len(ids)]]}))
            for n, member_id in enumerate(ids)
        )
        sync = {"generation_id": answer.generation_id, "member_id": answer.member_id, "assignments": plan}
        self.name_of[self.ask(SyncGroup, "g", **sync, **self.who[name])] = name


SUCCESSION = Policy(name="g", succession=Succession())
SUCCESSION_AND_QUARANTINE = Policy(name="g", succession=Succession(), quarantine=Quarantine(flaps=2))


def deployed(now_ms: int = 1_000_000) -> SeatedTopics:
    """Return a group whose members were replaced under policies, from a time on."""
    world = SeatedTopics(now_ms)
    world.policies(SUCCESSION)
    world.start("c1", "c2", "c3")
    world.wait(5 * S)
    world.stop("c2")
    world.wait(4 * S)
    world.start("d2")
    world.wait(4 * S)
    world.start("d1")
    world.wait(4 * S)
    world.stop("c1")
    world.wait(4 * S)
    world.kill("c3")
    world.wait(50 * S)
    freeze = Freeze(until_ms=world.now_ms + 7200 * S, unowned_max_ms=20 * S)
    world.policies(Policy(name="*", freeze=freeze, settle=Settle()))
    world.policies(Policy(name="g", freeze=freeze))
    world.stop("d2")
    world.wait(30 * S)
    world.rebalance()
    world.policies(Policy(name="g", settle=Settle(join_quiet_ms=3 * S)))
    for name in ("n1", "n2", "n3"):
        world.start(name)
        world.wait(2 * S)
    world.wait(10 * S)
    world.policies(Policy(name="g", quarantine=Quarantine(flaps=2)))
    for name in ("f1", "f2", "f3"):
        world.start(name, client_host="/f")
        world.wait(4 * S)
        if name != "f3":
            world.stop(name)
    world.policies(SUCCESSION_AND_QUARANTINE)
    world.stop("n1")
    world.wait(2 * S)
    return world


POLICIES = (
    (),
    (SUCCESSION,),
    (Policy(name="g", settle=Settle(leave_quiet_ms=2 * S)),),
    (Policy(name="g", succession=Succession(vacant_ms=5 * S, standby_ms=5 * S), settle=Settle()),),
    (Policy(name="*", quarantine=Quarantine(flaps=2, percent_max=50), succession=Succession(vacant_ms=0)),),
)


def converse_seated(world: SeatedTopics, chance: random.Random, turns: int) -> None:
    """Start, stop and kill clients at random, while policies change."""
    started = 0
    for _ in range(turns):
        name = chance.choice(list(world.members)) if world.members else ""
        match chance.choice(["start", "start", "stop", "kill", "wait", "wait", "policies", "freeze", "rebalance"]):
            case "start" if len(world.members) < 6:
                started += 1
                world.start(f"{chance.choice('ab')}{started}", client_host=f"/{chance.randrange(3)}")
            case "stop" if name:
                world.stop(name)
            case "kill" if name:
                world.kill(name)
            case "policies":
                world.policies(*chance.choice(POLICIES))
            case "freeze" if chance.random() < 0.5:
                freeze = Freeze(until_ms=world.now_ms + chance.choice([20, 300]) * S, unowned_max_ms=5 * S)
                world.policies(Policy(name="g", freeze=freeze))
            case "rebalance" if chance.random() < 0.3:
                world.rebalance()
            case _:
                world.wait(chance.choice([1, 4, 20]) * S)
        world.now_ms += chance.choice([1, 100])
