"""The ends of memberships that count for the quarantine of a client.

A short membership is an expired session, an overdue join or sync, or a membership that ended within a minute of its
beginning. A client is known by its instance id, or else by its client id and host. If two members that are alive share
these, nobody can know which of them is unstable, and neither is counted. If many members expire at once, one cause is
behind them all, and none of them is counted.
"""

from bisect import bisect_right
from enum import Enum, auto

from coordinator.base.config import Config
from coordinator.base.limits import (
    NAMESAKES_MAX,
    NEVER_MS,
    SHORT_MEMBERSHIPS_MAX,
    UNSTABLE_CHECK_MS,
    UNSTABLE_CLIENTS_MAX,
)
from coordinator.base.policies import Quarantine
from coordinator.state.classic_group import Group, Member
from coordinator.state.consumer_group import ConsumerGroup
from coordinator.state.consumer_member import ConsumerMember
from coordinator.state.policy_state import UnstableClient

FORGOTTEN_AFTER = 4
"""A client without a short membership for so many times `within_ms` begins anew."""

OUTAGE_DIVISOR, OUTAGE_MEMBERS_MIN = 4, 2
"""More than this many members, and more than this part of all, expire at once only for a common cause."""

AnyMembers = Group | ConsumerGroup
"""A group of either protocol."""


class End(Enum):
    """The ways in which a membership ends by itself."""

    LEFT = auto()
    EXPIRED = auto()
    OVERDUE = auto()
    REFUSED = auto()  # its join did not fit into the group, so this is no short membership


def record_join(group: AnyMembers, member_id: str, now_ms: int, config: Config) -> None:
    """Store when a member joined, if a quarantine is in force."""
    if config.policy is not None and config.policy.quarantine is not None:
        group.policy_state.joined_ms[member_id] = now_ms


def record_end(group: AnyMembers, member: Member | ConsumerMember, end: End, now_ms: int, config: Config) -> None:
    """Count the end of a membership for the quarantine of its client, before the member is removed.

    A member in quarantine that missed a join round does not count: no round waits for it.
    """
    quarantine = config.policy.quarantine if config.policy is not None else None
    is_missing = end is End.OVERDUE and member.member_id in group.policy_state.quarantined
    if quarantine is None or not group.is_readable or is_missing or end is End.REFUSED:
        return
    if end is not End.LEFT and _is_outage(group, member, now_ms):
        _remove_end(group, member, now_ms, quarantine)
    elif (
        end is not End.LEFT
        or now_ms - group.policy_state.joined_ms.get(member.member_id, -NEVER_MS) <= UNSTABLE_CHECK_MS
    ):
        _count(group, member, end, now_ms, quarantine)


def unstable_client_in_quarantine(
    group: AnyMembers, member: Member | ConsumerMember, now_ms: int
) -> UnstableClient | None:
    """Return the data of a newcomer's client that has to be in quarantine now; None for every other one."""
    client = group.policy_state.unstable_clients.get(member.identity)
    return client if client is not None and client.until_ms > now_ms else None


def _is_outage(group: AnyMembers, member: Member | ConsumerMember, now_ms: int) -> bool:
    """Return whether many members have expired within one session timeout, this one included."""
    timeout_ms = group.hot_state.sessions[member.member_id].timeout_ms
    expiries_ms = group.policy_state.expiries_ms
    recent = expiries_ms[bisect_right(expiries_ms, now_ms - timeout_ms) :]
    most = max((len(group.members) + len(recent)) // OUTAGE_DIVISOR, OUTAGE_MEMBERS_MIN)
    group.policy_state.expiries_ms = [*recent, now_ms][-most - 1 :]
    return len(group.policy_state.expiries_ms) > most


def _remove_end(group: AnyMembers, member: Member | ConsumerMember, now_ms: int, quarantine: Quarantine) -> None:
    """Remove the short memberships of an outage: those within one session timeout."""
    since_ms = now_ms - group.hot_state.sessions[member.member_id].timeout_ms
    for client in group.policy_state.unstable_clients.values():
        kept = [at_ms for at_ms in client.times_ms if at_ms <= since_ms]
        if len(kept) < len(client.times_ms):
            quarantines = max(len(client.times_ms) - max(len(kept), quarantine.flaps - 1), 0)
            client.count = max(client.count - quarantines, 0)
            client.times_ms, client.until_ms = kept, 0


def _count(group: AnyMembers, member: Member | ConsumerMember, end: End, now_ms: int, quarantine: Quarantine) -> None:
    clients, identity = group.policy_state.unstable_clients, member.identity
    client = clients.pop(identity, None) or UnstableClient()
    if len(clients) >= UNSTABLE_CLIENTS_MAX:
        del clients[next(iter(clients))]
    clients[identity] = client
    if _is_shared(group, member, end, now_ms):
        client.times_ms, client.until_ms, client.shared_ms = [], 0, now_ms
    if now_ms - client.shared_ms < quarantine.within_ms:
        return
    if client.times_ms and now_ms - client.times_ms[-1] > FORGOTTEN_AFTER * quarantine.within_ms:
        client.count = 0
    recent = [at_ms for at_ms in client.times_ms if at_ms > now_ms - quarantine.within_ms]
    client.times_ms = [*recent, now_ms][-SHORT_MEMBERSHIPS_MAX:]
    if len(client.times_ms) >= quarantine.flaps:
        client.count += 1
        doubled = min(client.count - 1, quarantine.for_max_ms.bit_length())
        client.until_ms = now_ms + min(quarantine.for_ms << doubled, quarantine.for_max_ms)


def _is_shared(group: AnyMembers, member: Member | ConsumerMember, end: End, now_ms: int) -> bool:
    """Return whether another member of the same identity has joined before this one was last heard of."""
    session = group.hot_state.sessions[member.member_id]
    is_silent = end is End.EXPIRED and session.deadline_ms < NEVER_MS
    heard_ms = session.deadline_ms - session.timeout_ms if is_silent else now_ms
    joined_ms, present = group.policy_state.joined_ms, _present(group, member.identity)
    return len(present) > NAMESAKES_MAX or any(
        joined_ms.get(other, -NEVER_MS) < heard_ms for other in present if other != member.member_id
    )


def _present(group: AnyMembers, identity: str) -> set[str]:
    """Return the members with an identity."""
    if group.identities is None:
        group.identities = {}
        for member in group.members.values():
            group.identities.setdefault(member.identity, set()).add(member.member_id)
    return group.identities.get(identity, set())
