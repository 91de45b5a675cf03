"""Policies that arrive in the log: which ones a shard keeps, who may set them, and where they are in force."""

import json
from typing import Any

import msgspec
import pytest

from coordinator.base.access import Pattern
from coordinator.base.errors import ErrorCode
from coordinator.base.limits import POLICIES_AHEAD_MS, POLICIES_BYTES_MAX, POLICIES_MAX
from coordinator.base.policies import Freeze, Policies, Policy, Succession, size_of
from coordinator.messages.events import AccessDenied
from coordinator.messages.policy_events import PolicySet
from coordinator.messages.requests import DescribePolicies, Received, SetPolicies, Unreadable
from coordinator.messages.responses import DescribePoliciesAnswer, Reply
from coordinator.policies.store import PolicyStore
from coordinator.shard.shard import Shard
from coordinator.state import codec
from streaming.wire.records import decode_request
from tests.coordinator.scenario import SECRET, Scenario
from tests.coordinator.test_access import allow
from tests.coordinator.test_authorizer import CONFIG, ROOT

ENTRY = Policy(name="billing-", pattern=Pattern.PREFIXED, succession=Succession(vacant_ms=20_000))
NOW_MS = 1_000_000


def asked(s: Scenario, *policies: Policy, made_ms: int = NOW_MS) -> Scenario:
    """Set policies."""
    return s.ask("admin", SetPolicies, group_id="", made_ms=made_ms, policies=policies)


def kept(s: Scenario) -> Policies:
    """Return the policies that a shard says it keeps."""
    answer = s.ask("admin", DescribePolicies, group_id="").said
    assert isinstance(answer, DescribePoliciesAnswer)
    return Policies(answer.made_ms, answer.policies)


def test_policies_are_set_and_described():
    """policies.md 3.3: the answer has the time of the policies, and the shard reports the change once."""
    s = asked(Scenario().at(NOW_MS), ENTRY).hears(ErrorCode.NONE, made_ms=NOW_MS)
    assert kept(s) == Policies(NOW_MS, (ENTRY,))
    asked(s, ENTRY).hears(ErrorCode.NONE, made_ms=NOW_MS)
    (event,) = s.events(PolicySet)
    assert (event.group_id, event.at_ms, event.partition, event.made_ms, event.policies) == (
        None, NOW_MS, 0, NOW_MS, 1,
    )  # fmt: skip
    assert (event.principal, event.client_id, event.client_host) == ("User:ANONYMOUS", "admin", "/admin.example")


def test_a_shard_without_policies_describes_none():
    assert kept(Scenario()) == Policies()


@pytest.mark.parametrize(("made_ms", "why"), [
    (NOW_MS, f"the shard already has policies made at {NOW_MS}, and these were made at {NOW_MS}"),
    (NOW_MS - 1, f"the shard already has policies made at {NOW_MS}, and these were made at {NOW_MS - 1}"),
    (NOW_MS + POLICIES_AHEAD_MS + 1,
     f"the policies were made at {NOW_MS + POLICIES_AHEAD_MS + 1}, which is in the future: it is {NOW_MS} now"),
])  # fmt: skip
def test_only_later_policies_are_kept(made_ms: int, why: str):
    """policies.md 3.3: the later time counts, and none that is more than five minutes ahead."""
    s = asked(Scenario().at(NOW_MS), ENTRY)
    asked(s, made_ms=made_ms).hears(ErrorCode.INVALID_REQUEST, error_message=why)
    assert kept(s) == Policies(NOW_MS, (ENTRY,))


def test_policies_from_five_minutes_ahead_are_kept():
    asked(Scenario().at(NOW_MS), made_ms=NOW_MS + POLICIES_AHEAD_MS).hears(ErrorCode.NONE)


def test_policies_that_do_not_fit_each_other_are_refused_as_a_whole():
    """policies.md 3.3: the error names the field, and nothing is set."""
    s = asked(Scenario().at(NOW_MS), ENTRY, Policy(name="g", freeze=Freeze()))
    s.hears(ErrorCode.INVALID_REQUEST, error_message="policies[1].freeze needs either until_ms or windows")
    assert kept(s) == Policies()
    assert not s.events(PolicySet)


def of_size(size_bytes: int) -> tuple[Policy, ...]:
    """Return entries whose size is `size_bytes`."""
    entries = [Policy(name=f"{n:03}", assignors=("x" * 200,) * 3) for n in range(102)]
    missing = size_bytes - size_of(Policies(NOW_MS, (*entries, Policy(name="x", assignors=("x",)))))
    longest, rest = divmod(missing - 40, 202)
    return (*entries, Policy(name="x", assignors=("x", *["x" * 200] * longest, "x" * (38 + rest))))


def test_all_policies_together_have_a_size():
    """I22: 64 KiB are accepted, one byte more is not."""
    assert size_of(Policies(NOW_MS, of_size(POLICIES_BYTES_MAX))) == POLICIES_BYTES_MAX
    s = asked(Scenario().at(NOW_MS), *of_size(POLICIES_BYTES_MAX + 1))
    why = f"the policies take {POLICIES_BYTES_MAX + 1} bytes, and {POLICIES_BYTES_MAX} are allowed"
    s.hears(ErrorCode.INVALID_REQUEST, error_message=why)
    asked(s, *of_size(POLICIES_BYTES_MAX)).hears(ErrorCode.NONE)


@pytest.mark.parametrize(("policies", "why"), [
    ([{"name": str(n)} for n in range(POLICIES_MAX + 1)], "at `policies`"),
    ([{"name": "g", "succession": {"vacant_ms": -1}}], "at `policies[0].succession.vacant_ms`"),
    ([{"name": "g", "sucession": {}}], "unknown field `sucession` - at `policies[0]`"),
])  # fmt: skip
def test_a_wrong_request_is_answered_with_the_place_of_the_value(policies: list[Any], why: str):
    """policies.md 3.3: values out of their bounds, unknown names and too many entries are refused by name."""
    request = {"kind": "set_policies", "request_id": "1", "reply_to": "inbox", "made_ms": 1, "policies": policies}
    record = decode_request(json.dumps(request).encode())
    assert isinstance(record, Unreadable)
    s = Scenario().send("admin", record).hears(ErrorCode.INVALID_REQUEST)
    assert why in s.said.error_message


def test_two_hundred_entries_are_accepted():
    """I22: as many entries as the bound allows."""
    asked(Scenario().at(NOW_MS), *(Policy(name=str(n)) for n in range(POLICIES_MAX))).hears(ErrorCode.NONE)


def test_policies_need_the_rights_of_an_administrator():
    """policies.md 3.3: ALTER the cluster to set policies, DESCRIBE it to see them, if access rules are in use."""
    shard = Shard(0, 1, SECRET, CONFIG)
    ana = {"request_id": "1", "reply_to": "inbox", "principal": "User:ana", "client_host": "/a"}
    root = {**ana, "principal": ROOT}
    requests = [
        SetPolicies(**ana, made_ms=1, policies=(ENTRY,)), DescribePolicies(**ana),
        SetPolicies(**root, made_ms=1, policies=(ENTRY,)), DescribePolicies(**root),
    ]  # fmt: skip
    outputs = shard.step([Received(n, NOW_MS, request) for n, request in enumerate(requests)], NOW_MS)
    assert [o.answer.error for o in outputs if isinstance(o, Reply)] == [
        "CLUSTER_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "NONE", "NONE",
    ]  # fmt: skip
    assert [(o.request, o.operation) for o in outputs if isinstance(o, AccessDenied)] == [
        ("set_policies", "ALTER"), ("describe_policies", "DESCRIBE"),
    ]  # fmt: skip


def test_a_principal_with_describe_sees_the_policies():
    rule = allow("User:ana", "DESCRIBE", "kafka-cluster", of="CLUSTER")
    state = codec.encode_shard(codec.ShardSnapshot(access=codec.encode_access(codec.Access(1, (rule,)))))
    request = DescribePolicies(request_id="1", reply_to="inbox", principal="User:ana", client_host="/a")
    (reply,) = Shard(0, 1, SECRET, CONFIG, state).step([Received(0, NOW_MS, request)], NOW_MS)
    assert isinstance(reply, Reply)
    assert reply.answer.error == "NONE"


def test_settings_have_the_entry_in_force():
    """policies.md 3.3: the settings with a policy are made once for each entry."""
    policies = PolicyStore(CONFIG, codec.encode_policies(Policies(1, (ENTRY, Policy(name="*")))))
    assert policies.config_of("billing-eu").policy == ENTRY
    assert policies.config_of("billing-eu") is policies.config_of("billing-us")
    assert policies.config_of("other").policy == Policy(name="*")
    assert PolicyStore(CONFIG, b"").config_of("billing-eu") is CONFIG


def test_a_state_without_policies_has_no_byte_for_them():
    """policies.md P8: nor for moves and open transactions."""
    state = Scenario.stable("a", "b").shard.to_bytes()
    values = msgspec.structs.astuple(codec.decode_shard(state))
    assert state[5:] == msgspec.msgpack.encode(values[:8])


def test_a_shard_with_policies_alone_is_not_blank():
    """The state of a blank shard is dropped."""
    s = asked(Scenario().at(NOW_MS), ENTRY)
    assert not s.shard.is_blank
    assert Scenario().shard.is_blank
