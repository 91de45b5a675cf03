"""The index of a group's seats, which finds the vacancy for a newcomer and the standby for a vacancy at once.

The index is made when it is needed first. Until then, functions that change it do nothing. A caller changes the group
before it puts something into the index, and takes something out before it changes the group.
"""

from coordinator.state.classic_group import Group, Member
from coordinator.state.policy_state import MatchKey, VacancyIndex, digest_of


def index_of(group: Group) -> VacancyIndex:
    """Return the index of a group. The group's `end_hold` drops it."""
    if group.vacancy_index is None:
        group.vacancy_index = VacancyIndex()
        waiting = [group.members[member_id] for member_id in group.policy_state.standbys]
        for member in (
            *(m for m in group.members.values() if m.member_id not in group.policy_state.standbys),
            *waiting,
        ):
            index_member(group, member)
        for key in group.policy_state.vacant:
            index_vacancy(group, key)
    return group.vacancy_index


def match_key_of(group: Group, member: Member) -> MatchKey:
    """Return the properties by which a member finds a vacancy."""
    standby = group.policy_state.standbys.get(member.member_id)
    subscription_digest = (
        standby.subscription_digest if standby else digest_of(group.protocol_type or "", member.protocols)
    )
    return MatchKey(subscription_digest, member.group_instance_id, member.client_id, member.client_host)


def index_member(group: Group, member: Member) -> None:
    """Add a member: as a standby if it waits without an offer, or as an owner."""
    index, policy_state = group.vacancy_index, group.policy_state
    if index is None or member.member_id in policy_state.quarantined:
        return
    if member.member_id not in policy_state.standbys:
        index.owners[match_key_of(group, member).subscription_digest] += 1
    elif member.member_id not in policy_state.offers:
        index.standbys.add(member.member_id, match_key_of(group, member))


def unindex_member(group: Group, member: Member) -> None:
    """Remove what `index_member` has added for a member."""
    index, policy_state = group.vacancy_index, group.policy_state
    if index is None or member.member_id in policy_state.quarantined:
        return
    if member.member_id not in policy_state.standbys:
        index.owners[match_key_of(group, member).subscription_digest] -= 1
    else:
        index.standbys.remove(member.member_id, match_key_of(group, member))


def index_vacancy(group: Group, key: str) -> None:
    """Add a vacancy: as free if it is, and as an assignment that somebody may wait for."""
    index, vacancy = group.vacancy_index, group.policy_state.vacant[key]
    if index is not None:
        index.owners[vacancy.subscription_digest] += 1
        if vacancy.is_free:
            index.vacancies.add(key, vacancy.match_key)


def unindex_vacancy(group: Group, key: str) -> None:
    """Remove what `index_vacancy` has added."""
    index, vacancy = group.vacancy_index, group.policy_state.vacant[key]
    if index is not None:
        index.owners[vacancy.subscription_digest] -= 1
        index.vacancies.remove(key, vacancy.match_key)
