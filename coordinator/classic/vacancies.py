"""The index of a group's seats, which finds the vacancy for a newcomer and the standby for a vacancy at once.

The index is made when it is needed first. Until then, functions that change it do nothing. A caller changes the group
before it puts something into the index, and takes something out before it changes the group.
"""

from coordinator.state.classic_group import Group, Member
from coordinator.state.policy_state import Kin, SeatIndex, likeness_of


def index_of(group: Group) -> SeatIndex:
    """Return the index of a group. The group's `end_hold` drops it."""
    if group.seat_index is None:
        group.seat_index = SeatIndex()
        waiting = [group.members[member_id] for member_id in group.seats.standbys]
        for member in (*(m for m in group.members.values() if m.member_id not in group.seats.standbys), *waiting):
            put_in(group, member)
        for key in group.seats.vacant:
            put_in_vacancy(group, key)
    return group.seat_index


def kin_of(group: Group, member: Member) -> Kin:
    """Return the properties by which a member finds a vacancy."""
    standby = group.seats.standbys.get(member.member_id)
    likeness = standby.likeness if standby else likeness_of(group.protocol_type or "", member.protocols)
    return Kin(likeness, member.group_instance_id, member.client_id, member.client_host)


def put_in(group: Group, member: Member) -> None:
    """Add a member: as a standby if it waits without an offer, or as an owner."""
    index, seats = group.seat_index, group.seats
    if index is None or member.member_id in seats.hidden:
        return
    if member.member_id not in seats.standbys:
        index.owners[kin_of(group, member).likeness] += 1
    elif member.member_id not in seats.offers:
        index.standbys.add(member.member_id, kin_of(group, member))


def take_out(group: Group, member: Member) -> None:
    """Remove what `put_in` has added for a member."""
    index, seats = group.seat_index, group.seats
    if index is None or member.member_id in seats.hidden:
        return
    if member.member_id not in seats.standbys:
        index.owners[kin_of(group, member).likeness] -= 1
    else:
        index.standbys.remove(member.member_id, kin_of(group, member))


def put_in_vacancy(group: Group, key: str) -> None:
    """Add a vacancy: as free if it is, and as an assignment that somebody may wait for."""
    index, vacancy = group.seat_index, group.seats.vacant[key]
    if index is not None:
        index.owners[vacancy.likeness] += 1
        if vacancy.is_free:
            index.vacancies.add(key, vacancy.kin)


def take_out_vacancy(group: Group, key: str) -> None:
    """Remove what `put_in_vacancy` has added."""
    index, vacancy = group.seat_index, group.seats.vacant[key]
    if index is not None:
        index.owners[vacancy.likeness] -= 1
        index.vacancies.remove(key, vacancy.kin)
