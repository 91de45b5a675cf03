"""Many members that join one new group at the same time, as at the start of a whole service.

The members read no records. Each is the client's `Driver` over a shared `Transport`, without a KafkaConsumer, because
fetching records would use more processor time than the rebalance. One thread polls all members in turn, a hundred times
a second. The leader computes the assignments of range: each member, in the order of the ids, gets the next two
partitions.
"""

import time
from collections.abc import Iterator, Sequence

from coordinator.base.consumer_protocol import assigned_partitions, write_assignment
from coordinator.base.states import Phase
from coordinator.member.effects import Assigned, Failed, MakePlan, PrepareToJoin
from coordinator.member.member import MemberState
from coordinator.member.requests import MemberConfig
from coordinator.messages.requests import Assignment, DescribeGroup, Protocol
from coordinator.messages.responses import DescribeGroupAnswer, JoinedMember
from streaming.client import Transport
from streaming.client.driver import Driver
from streaming.config.settings import Settings
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures
from tests.benchmarks.members import METADATA, TOPIC

GROUP = "storm"
PARTITIONS_EACH = 2
TURN_S = 0.01
REST_WAIT_S = 120.0


def measure(settings: Settings, members: int) -> Figures:
    """Make `members` members join together; return the seconds until the group is Stable, and its generations."""
    say(f"{members} members join one group at the same time.")
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix) as transport:
        crowd = [_Member(transport, number) for number in range(members)]
        began_s = time.monotonic()
        for member in crowd:
            member.driver.subscribe()
        while not _is_stable(crowd):
            for member in crowd:
                member.turn()
            if time.monotonic() > began_s + REST_WAIT_S:
                raise BenchFailed(f"the group was not stable within {REST_WAIT_S:.0f} s: {_states(crowd)}")
            time.sleep(TURN_S)
        took_s = time.monotonic() - began_s
        _check_partition_owners(transport, crowd)
        generations = crowd[0].driver.member.generation_id
        for member in crowd:
            member.driver.leave("the storm is over", wait_s=0.0)
    say(f"All {members} were Stable after {took_s:.2f} s, in generation {generations}.")
    return {"storm_members": members, "storm_s": took_s, "storm_generations": generations}


class _Member:
    """A member that performs its driver's effects and reads no records."""

    def __init__(self, transport: Transport, number: int) -> None:
        config = MemberConfig(
            group_id=GROUP,
            client_id=f"storm-{number}",
            reply_to=transport.inbox,
            client_host=transport.client_host(),
        )
        self.driver = Driver(transport, config)
        self.owned: list[int] = []

    def turn(self) -> None:
        """Poll the driver, and perform its effects until it returns none."""
        while (effect := self.driver.poll()) is not None:
            match effect:
                case PrepareToJoin():
                    self.owned = []
                    self.driver.join([Protocol("range", METADATA)])
                case MakePlan(generation_id, _, members):
                    self.driver.plan(generation_id, _assignments(members))
                case Assigned(_, _, assignment):
                    self.owned = (assigned_partitions(assignment) or {}).get(TOPIC.decode(), [])
                case Failed():
                    raise BenchFailed(f"a member was refused: {effect}")


def _assignments(members: Sequence[JoinedMember]) -> Iterator[Assignment]:
    """Yield the assignments that range computes."""
    for place, member_id in enumerate(sorted(member.member_id for member in members)):
        mine = range(place * PARTITIONS_EACH, (place + 1) * PARTITIONS_EACH)
        yield Assignment(member_id, write_assignment({TOPIC.decode(): mine}))


def _is_stable(crowd: Sequence[_Member]) -> bool:
    generations = {member.driver.member.generation_id for member in crowd}
    return len(generations) == 1 and all(m.driver.member.state is MemberState.STABLE and m.owned for m in crowd)


def _check_partition_owners(transport: Transport, crowd: Sequence[_Member]) -> None:
    """Check with the coordinator that each partition has one owner."""
    owned = sorted(partition for member in crowd for partition in member.owned)
    if owned != list(range(len(crowd) * PARTITIONS_EACH)):
        raise BenchFailed("a partition has no owner, or two owners")
    described = transport.ask(DescribeGroup(request_id="", reply_to="", group_id=GROUP))
    assert isinstance(described, DescribeGroupAnswer), f"the response to DescribeGroup is {described}"
    if (described.state, len(described.members)) != (Phase.STABLE, len(crowd)):
        raise BenchFailed(f"the group is {described.state} with {len(described.members)} members")


def _states(crowd: Sequence[_Member]) -> str:
    states = [member.driver.member.state.name for member in crowd]
    return ", ".join(f"{states.count(name)} {name}" for name in sorted(set(states)))
