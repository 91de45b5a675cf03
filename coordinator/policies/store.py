"""The policies that a shard keeps, the settings of each group that follow from them, and requests for them.

They are set through the log, as access rules are: every shard gets the same `set_policies` request, and uses its
policies from the offset of that record on. A handler gets the entry in force as a part of the settings.
"""

from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from coordinator.base.access import ANONYMOUS
from coordinator.base.config import Config
from coordinator.base.context import Context
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import POLICIES_AHEAD_MS, POLICIES_BYTES_MAX
from coordinator.base.policies import Policies, PolicyTable, problems, size_of
from coordinator.common.refusals import refusal
from coordinator.messages.outputs import Output
from coordinator.messages.policy_events import PolicySet
from coordinator.messages.requests import DescribePolicies, SetPolicies
from coordinator.messages.responses import DescribePoliciesAnswer, Reply, SetPoliciesAnswer
from coordinator.state.codec import decode_policies, encode_policies


@lru_cache(64)
def _table(written: bytes) -> PolicyTable:
    return PolicyTable(decode_policies(written).policies)


class PolicyStore:
    """The policies of a shard.

    Args:
        config: The settings of groups without a policy.
        written: The encoded policies from the shard's state.
    """

    def __init__(self, config: Config, written: bytes) -> None:
        self._config = config
        self.written = written
        self._table = _table(written) if written else None
        self._configs: dict[tuple[str, str], Config] = {}

    def replace(self, policies: Policies) -> None:
        """Replace the policies."""
        self.written = encode_policies(policies)
        self._table, self._configs = _table(self.written), {}

    def config_of(self, group_id: str) -> Config:
        """Return the settings of a group, with the policy entry in force."""
        policy = self._table.of(group_id) if self._table is not None else None
        if policy is None:
            return self._config
        key = policy.pattern, policy.name
        if key not in self._configs:
            self._configs[key] = replace(self._config, policy=policy)
        return self._configs[key]


def set_policies(kept: PolicyStore, request: SetPolicies, context: Context) -> Iterator[Output]:
    """Replace the policies of a shard, unless the shard has later ones.

    Replies with:
        INVALID_REQUEST: the shard has other policies that were made at the same time or later; or the new policies were
            made in the future, are too large, or have a value that does not fit another one.
    """
    before, policies = decode_policies(kept.written), Policies(request.made_ms, request.policies)
    answer = Reply(request.reply_to, SetPoliciesAnswer(request_id=request.request_id, made_ms=policies.made_ms))
    if policies == before:
        yield answer
        return
    if (why := _why_not(before, policies, context.now_ms)) is not None:
        yield refusal(SetPoliciesAnswer, request, ErrorCode.INVALID_REQUEST, why)
        return
    kept.replace(policies)
    yield PolicySet(
        group_id=None,
        version=None,
        at_ms=context.now_ms,
        generation_id=None,
        principal=request.principal or ANONYMOUS,
        client_id=request.client_id,
        client_host=request.client_host,
        partition=context.partition,
        made_ms=policies.made_ms,
        policies=len(policies.policies),
    )
    yield answer


def _why_not(before: Policies, policies: Policies, now_ms: int) -> str | None:
    """Return a sentence with the reason why policies are refused; None if they are not."""
    if policies.made_ms <= before.made_ms:
        return f"the shard already has policies made at {before.made_ms}, and these were made at {policies.made_ms}"
    if policies.made_ms > now_ms + POLICIES_AHEAD_MS:
        return f"the policies were made at {policies.made_ms}, which is in the future: it is {now_ms} now"
    if (size := size_of(policies)) > POLICIES_BYTES_MAX:
        return f"the policies take {size} bytes, and {POLICIES_BYTES_MAX} are allowed"
    problem = next(problems(policies), None)
    return None if problem is None else str(problem)


def describe_policies(kept: PolicyStore, request: DescribePolicies, context: Context) -> Iterator[Output]:
    """Reply with the policies that the shard keeps."""
    policies = decode_policies(kept.written)
    answer = DescribePoliciesAnswer(request_id=request.request_id, made_ms=policies.made_ms, policies=policies.policies)
    yield Reply(request.reply_to, answer)
