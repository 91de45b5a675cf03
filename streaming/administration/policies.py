"""The coordinator's policies: set, shown, and changed for one group.

Each shard gets all policies, and applies the latest ones that it has received.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from coordinator.base.access import Pattern
from coordinator.base.hashing import shard_of
from coordinator.base.limits import POLICIES_MAX
from coordinator.base.policies import Freeze, Policies, Policy, PolicyTable
from coordinator.messages.requests import DescribePolicies, SetPolicies
from coordinator.messages.responses import DescribePoliciesAnswer
from streaming.administration.shards import ask_every_shard
from streaming.config.settings import Settings
from streaming.errors import RequestRefused
from streaming.moments import unix_ms

CLIENT_ID = "coordinator-policy"


def set_policies(settings: Settings, policies: tuple[Policy, ...], made_ms: int) -> int:
    """Set these policies in every shard, and return the number of shards.

    Args:
        made_ms: The time at which they were made, Unix milliseconds.

    Raises:
        RequestRefused: Not all shards have accepted the policies.
        UserError: Not all shards have answered.
    """
    request = SetPolicies(request_id="", reply_to="", client_id=CLIENT_ID, made_ms=made_ms, policies=policies)
    return len(ask_every_shard(settings, request, "policies"))


class ShownPolicies(NamedTuple):
    """The policies of every shard, in the order of the shards. They are equal, unless some have not received the
    latest ones yet.
    """

    of_shards: list[Policies]

    @property
    def latest(self) -> Policies:
        """The policies that were made last."""
        return max(self.of_shards, key=lambda policies: policies.made_ms)

    @property
    def shards_behind(self) -> int:
        """The number of shards with other policies than the latest ones."""
        return sum(policies != self.latest for policies in self.of_shards)

    def of(self, group_id: str) -> Policy | None:
        """Return the entry that is in force for a group in its shard; None if it has none."""
        return PolicyTable(self.of_shards[shard_of(group_id, len(self.of_shards))].policies).of(group_id)


def shown_policies(settings: Settings) -> ShownPolicies:
    """Return the policies of every shard.

    Raises:
        RequestRefused: The shards refuse to show them.
        UserError: Not all shards have answered.
    """
    request = DescribePolicies(request_id="", reply_to="", client_id=CLIENT_ID)
    answers = ask_every_shard(settings, request, "policies")
    return ShownPolicies([Policies(a.made_ms, a.policies) for a in answers if isinstance(a, DescribePoliciesAnswer)])


def set_freeze(settings: Settings, group_id: str, for_ms: int | None) -> int | None:
    """Freeze a group for a time, or end its freeze, and return the end of the freeze.

    All other policies stay as they are, except freezes that have ended.

    Args:
        for_ms: How long, milliseconds; None to end the freeze.

    Raises:
        RequestRefused: The group is frozen in windows of the week, there are too many entries, or not all shards have
            accepted the policies.
        UserError: Not all shards have answered.
    """
    before = shown_policies(settings).latest
    now_ms = unix_ms()
    policies = without_ended_freezes(before.policies, now_ms)
    freeze = None if for_ms is None else _freeze(PolicyTable(policies).of(group_id), now_ms + for_ms)
    after = with_freeze(policies, group_id, freeze)
    if len(after) > POLICIES_MAX:
        raise RequestRefused(f"There are {POLICIES_MAX} entries already. Remove one with policy set.")
    set_policies(settings, after, max(now_ms, before.made_ms + 1))
    return None if freeze is None else freeze.until_ms


def _freeze(policy: Policy | None, until_ms: int) -> Freeze:
    """Return a freeze until a time, with the other settings of the freeze in force.

    Raises:
        RequestRefused: That freeze has windows. A freeze has either windows or an end, so they would be lost.
    """
    if policy is None or policy.freeze is None:
        return Freeze(until_ms=until_ms)
    if policy.freeze.windows:
        raise RequestRefused(
            f"The entry {policy.name} has a freeze with windows of the week, which this freeze would replace for good."
            " Change the entry with policy set."
        )
    return replace(policy.freeze, until_ms=until_ms)


def without_ended_freezes(policies: Sequence[Policy], now_ms: int) -> tuple[Policy, ...]:
    """Return policies without the freezes that have ended, because a shard accepts none of them again."""
    return tuple(replace(each, freeze=None) if _has_ended(each.freeze, now_ms) else each for each in policies)


def _has_ended(freeze: Freeze | None, now_ms: int) -> bool:
    return freeze is not None and freeze.until_ms is not None and freeze.until_ms <= now_ms


def with_freeze(policies: Sequence[Policy], group_id: str, freeze: Freeze | None) -> tuple[Policy, ...]:
    """Return policies in which a group has this freeze, or none, and its other policies as before.

    A group whose entry names a prefix gets a copy of that entry under its own name. An entry of its own that makes no
    difference is removed.
    """
    others = tuple(each for each in policies if (each.pattern, each.name) != (Pattern.LITERAL, group_id))
    inherited = PolicyTable(others).of(group_id) or Policy(name=group_id)
    base = PolicyTable(policies).of(group_id) or inherited
    own = replace(base, name=group_id, pattern=Pattern.LITERAL, freeze=freeze)
    if own == replace(inherited, name=group_id, pattern=Pattern.LITERAL):
        return others
    return (*others, own)
