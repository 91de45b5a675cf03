"""Access checks: refused requests, what they leave unchanged, and rules that arrive in the log (promises.md 6)."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator.base.access import Access, Operation, Resource, Rule
from coordinator.base.config import Config
from coordinator.base.limits import RULES_AHEAD_MS
from coordinator.base.states import Phase
from coordinator.common.authorizer import COORDINATOR
from coordinator.messages.consumer_requests import ConsumerGroupHeartbeat
from coordinator.messages.events import AccessChanged, AccessDenied
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.outputs import Output
from coordinator.messages.requests import (
    Action,
    CheckAccess,
    DeleteGroup,
    DescribeAccess,
    DescribeGroup,
    ExpelMember,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Protocol,
    RebalanceGroup,
    Received,
    RepublishGroup,
    Request,
    SetAccess,
    SyncGroup,
    TopicPartitions,
    TxnOffsetCommit,
)
from coordinator.messages.responses import Reply
from coordinator.shard.handlers import HANDLERS
from coordinator.shard.shard import Shard
from coordinator.state import codec
from tests.coordinator.scenario import SECRET, Scenario
from tests.coordinator.test_access import allow, deny
from tests.coordinator.waking import wake

ROOT, ANA, EVE = "User:root", "User:ana", "User:eve"
CONFIG = Config(group_initial_rebalance_delay_ms=0, access="rules", super_users=(ROOT,))
UNHURRIED = msgspec.structs.replace(CONFIG, late_notice_ms=2**40)
"""A configuration in which no deadline counts as noticed late, however much time one batch spans."""
ASKED = {"request_id": "1", "reply_to": "inbox", "client_id": "c", "client_host": "/10.0.0.1"}
RULES = (allow(ANA, "ALL"), allow(ANA, "READ", "t", of="TOPIC"), allow(ANA, "DESCRIBE", "seen", of="TOPIC"))

OFFSETS = tuple(OffsetToCommit(topic, p, 7) for topic, p in (("t", 0), ("u", 0), ("t", 1)))
PLACES = (TopicPartitions("u", (0,)), TopicPartitions("t", (0, 1)))

JOINING = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
           "protocols": (Protocol("range"),), "require_known_member_id": False}  # fmt: skip

OF_A_GROUP: dict[str, Callable[..., Request]] = {
    "join": lambda **who: JoinGroup(**ASKED, **JOINING, **who),
    "sync": lambda **who: SyncGroup(**ASKED, generation_id=1, member_id="m", **who),
    "heartbeat": lambda **who: Heartbeat(**ASKED, generation_id=1, member_id="m", **who),
    "leave": lambda **who: LeaveGroup(**ASKED, members=(Leaving("m"),), **who),
    "commit": lambda **who: OffsetCommit(**ASKED, offsets=OFFSETS, **who),
    "fetch": lambda **who: OffsetFetch(**ASKED, topics=PLACES, **who),
    "fetch all": lambda **who: OffsetFetch(**ASKED, **who),
    "delete offsets": lambda **who: OffsetDelete(**ASKED, topics=PLACES, **who),
    "describe": lambda **who: DescribeGroup(**ASKED, **who),
    "delete": lambda **who: DeleteGroup(**ASKED, **who),
    "rebalance": lambda **who: RebalanceGroup(**ASKED, **who),
    "expel": lambda **who: ExpelMember(**ASKED, member_id="m", **who),
}


AGAIN = RepublishGroup(**ASKED, group_id="g", group=True)


class Log:
    """One shard and its log, with one request in each batch."""

    def __init__(self, rules: tuple[Rule, ...] = RULES, config: Config = CONFIG) -> None:
        self.config, self.offset, self.now_ms = config, 0, 1_000
        self.shard = Shard(0, 1, SECRET, config)
        self.ask(SetAccess(**ASKED, principal=ROOT, made_ms=1, rules=rules))

    def ask(self, request: Request, doubt: str | None = None) -> list[Output]:
        self.offset += 1
        return self.shard.step([Received(self.offset, self.now_ms, request, doubt)], self.now_ms)

    def hears(self, request: Request) -> Any:
        (answer,) = [output.answer for output in self.ask(request) if isinstance(output, Reply)]
        return answer

    def with_a_group(self) -> "Log":
        """A shard whose group g has offsets of t and u, and no members."""
        offsets = tuple(OffsetToCommit(topic, p, 5) for topic in ("t", "u") for p in (0, 1))
        said = self.hears(OffsetCommit(**ASKED, group_id="g", principal=ROOT, offsets=offsets))
        assert {p.code for p in said.partitions} == {0}
        return self


# -- requests about a group --------------------------------------------------------------------------------------------


def test_every_kind_of_request_needs_a_right_or_is_filtered():
    without_right = {request for request, kind in HANDLERS.items() if kind.right is None}
    assert without_right == {ListGroups, CheckAccess, Heartbeats}, "each heartbeat of a record needs its own right"


@pytest.mark.parametrize("kind", OF_A_GROUP)
def test_a_refusal_does_not_show_whether_the_group_exists(kind: str):
    """Promises 6: the responses are equal byte by byte, but for the names in the request."""
    log, request = Log(rules=()).with_a_group(), OF_A_GROUP[kind]
    there, absent = (
        [msgspec.json.encode(o.answer) for o in log.ask(request(group_id=g, principal=EVE)) if isinstance(o, Reply)]
        for g in ("g", "h")
    )
    assert [answer.replace(b'"h"', b'"g"') for answer in absent] == there
    (answer,) = there
    assert msgspec.json.decode(answer)["code"] == 30


def test_each_heartbeat_of_a_record_needs_the_right_of_its_own_client():
    log = Log(rules=()).with_a_group()
    who = {**ASKED, "group_id": "g", "member_id": "m"}
    beats = [Heartbeat(**who, generation_id=1, principal=principal) for principal in (ROOT, EVE)]
    bare = [ConsumerGroupHeartbeat(**who, member_epoch=1, principal=principal) for principal in (ROOT, EVE)]
    outputs = log.ask(Heartbeats.of([*beats, *bare], **ASKED))
    *denied, reply = outputs
    assert [(event.principal, event.request) for event in denied if isinstance(event, AccessDenied)] == [
        (EVE, "heartbeat"),
        (EVE, "consumer_group_heartbeat"),
    ]
    assert isinstance(reply, Reply)
    assert reply.answer.codes == (25, 30, 14, 30)


@pytest.mark.parametrize("kind", OF_A_GROUP)
def test_a_refused_request_changes_nothing_and_is_an_event(kind: str):
    """I14, I8: it changes no state, version or time of the group, even if a deadline was due. One event reports it."""
    log = Log(rules=()).with_a_group()
    log.now_ms += 8 * 24 * 3_600_000
    before = log.shard.to_bytes()
    request = OF_A_GROUP[kind](group_id="g", principal=EVE)
    log.offset += 1
    config = replace(CONFIG, clock_slack_ms=2**40)  # deadlines fire only for the request, if at all
    shard = Shard(0, 1, SECRET, config, before)
    denied, reply = shard.step([Received(9, log.now_ms, request)], log.now_ms)
    assert isinstance(reply, Reply)
    right = HANDLERS[type(request)].right
    assert right is not None
    operation, resource, _ = right
    tag = type(request).__struct_config__.tag
    assert denied == AccessDenied(
        group_id=None, version=None, at_ms=log.now_ms, generation_id=None, principal=EVE, client_id="c",
        client_host="/10.0.0.1", request=tag, operation=operation, resource=resource, names=("g",), why=None,
    )  # fmt: skip
    was, now = codec.decode_shard(before), codec.decode_shard(shard.to_bytes())
    assert (now.groups, now.removed_groups, now.access) == (was.groups, was.removed_groups, was.access)


@pytest.mark.parametrize("kind", OF_A_GROUP)
@pytest.mark.parametrize("operation", ["READ", "DELETE", "DESCRIBE", "WRITE"])
def test_each_kind_needs_the_operation_that_kafka_needs(kind: str, operation: str):
    """KafkaApis; AuthorizerIntegrationTest.requestKeysToAcls: each kind needs the same operation."""
    log = Log(rules=(allow(EVE, operation),))
    needed = {"READ": "join sync heartbeat leave commit rebalance expel", "DELETE": "delete, delete offsets"}
    describes = kind in ("fetch", "fetch all", "describe")
    expected = describes or kind in needed.get(operation, "").replace(",", "").split() or (
        operation == "DELETE" and kind == "delete offsets"
    )  # fmt: skip
    assert (log.hears(OF_A_GROUP[kind](group_id="g", principal=EVE)).code != 30) == bool(expected)


def test_a_request_without_a_principal_is_anonymous():
    log = Log(rules=(allow("User:ANONYMOUS", "READ"),))
    assert log.hears(OF_A_GROUP["heartbeat"](group_id="g")).code == 25
    assert log.hears(OF_A_GROUP["heartbeat"](group_id="g", principal=EVE)).code == 30


@pytest.mark.parametrize("group_id", ["", "x" * 250, "x" * 100_000])
def test_access_is_checked_first(group_id: str):
    """As in KafkaApis: a client without access is not told that its group id is invalid; and no event is large."""
    denied, reply = Log().ask(OF_A_GROUP["heartbeat"](group_id=group_id, principal=EVE))
    assert reply.answer.code == 30
    assert len(denied.names[0]) < 250
    assert Log().hears(OF_A_GROUP["heartbeat"](group_id=group_id, principal=ROOT)).code == 24


def test_a_record_in_doubt_is_refused_under_any_rules():
    """A wrong signature: the request is refused even for a super user; the event has the reason."""
    log = Log(rules=(allow("User:*", "ALL"),))
    for request in [make(group_id="g", principal=ROOT) for make in OF_A_GROUP.values()]:
        denied, reply = log.ask(request, doubt="its signature is wrong")
        assert (reply.answer.code, reply.answer.error_message) == (30, "its signature is wrong")
        assert (denied.principal, denied.why) == (ROOT, "its signature is wrong")
    for request in (ListGroups(**ASKED), CheckAccess(**ASKED, actions=())):
        assert log.ask(request, doubt="?")[1].answer.code == 30
    before = log.shard.to_bytes()
    assert log.ask(SetAccess(**ASKED, principal=ROOT, made_ms=5, rules=()), doubt="?")[1].answer.code == 31
    assert log.shard.to_bytes() == before


@pytest.mark.parametrize(("principal", "rules", "code"), [
    (COORDINATOR, (), 0),
    (EVE, (allow(EVE, "ALTER", "kafka-cluster", of="CLUSTER"),), 0),
    (EVE, (allow(EVE, "ALL"),), 31),
    (None, (), 31),
])  # fmt: skip
def test_republishing_needs_the_coordinator_or_alter_on_the_cluster(
    principal: str | None, rules: tuple[Rule, ...], code: int
):
    log = Log(rules).with_a_group()
    assert log.hears(msgspec.structs.replace(AGAIN, principal=principal)).code == code


def test_the_coordinators_principal_without_a_signature_is_refused():
    """No gateway could sign for this principal. It may do nothing else either."""
    log = Log().with_a_group()
    again = msgspec.structs.replace(AGAIN, principal=COORDINATOR)
    assert [o.answer.code for o in log.ask(again, doubt="not signed") if isinstance(o, Reply)] == [31]
    assert log.hears(OF_A_GROUP["describe"](group_id="g", principal=COORDINATOR)).code == 30


@pytest.mark.parametrize(("principal", "host", "code"), [
    (ANA, "/10.0.0.1", 0),
    (ANA, "", 0),
    (None, "/10.0.0.1", 0),
    (None, "", 30),
])  # fmt: skip
def test_a_commit_in_a_transaction_needs_a_signature(principal: str | None, host: str, code: int):
    """Its place is that of a record that a gateway has written. Only a signed record has a principal or a host."""
    log = Log(rules=(allow("User:*", "ALL"), allow("User:*", "ALL", "t", of="TOPIC")))
    fields = {**ASKED, "client_host": host, "group_id": "g", "principal": principal, "offsets": OFFSETS[:1]}
    request = TxnOffsetCommit(**fields, place=5, producer_id=1, producer_epoch=0)
    (answer,) = [output.answer for output in log.ask(request) if isinstance(output, Reply)]
    assert [p.code for p in answer.partitions] == [code]
    assert answer.code == code
    if code:
        assert "signs it" in answer.error_message
        assert not log.shard.group_ids


def test_a_commit_in_a_transaction_needs_no_signature_where_access_is_open():
    log = Log(config=msgspec.structs.replace(CONFIG, access="open"))
    fields = {**ASKED, "client_host": "", "group_id": "g", "offsets": OFFSETS[:1]}
    request = TxnOffsetCommit(**fields, place=5, producer_id=1, producer_epoch=0)
    assert [p.code for p in log.hears(request).partitions] == [0]


def test_open_access_checks_no_principal():
    log = Log(rules=(deny("User:*", "ALL"),), config=msgspec.structs.replace(CONFIG, access="open"))
    log.with_a_group()
    assert log.hears(OF_A_GROUP["describe"](group_id="g", principal=EVE)).state is Phase.EMPTY
    assert log.hears(CheckAccess(**ASKED, actions=(Action(Operation.READ, Resource.GROUP, "g"),))).allowed == (True,)


# -- topics ------------------------------------------------------------------------------------------------------------


def codes(answer: Any) -> list[tuple[str, int, int]]:
    return [(p.topic, p.partition, p.code) for p in answer.partitions]


def test_a_commit_stores_what_its_sender_may_read_and_refuses_the_rest():
    """KafkaApis.handleOffsetCommitRequest: in the order of the request, 29 for partitions of unauthorized topics."""
    log = Log().with_a_group()
    denied, *others = log.ask(OF_A_GROUP["commit"](group_id="g", principal=ANA))
    assert (denied.operation, denied.resource, denied.names) == ("READ", "TOPIC", ("u",))
    assert codes(others[-1].answer) == [("t", 0, 0), ("u", 0, 29), ("t", 1, 0)]
    group = log.shard.group("g")
    assert [(t, p, o.offset) for t, p, o in group.all_offsets()] == [("t", 0, 7), ("t", 1, 7), ("u", 0, 5), ("u", 1, 5)]


def test_a_commit_without_an_allowed_topic_creates_no_group():
    log = Log()
    assert codes(log.hears(OffsetCommit(**ASKED, group_id="g", principal=ANA, offsets=OFFSETS[1:2]))) == [("u", 0, 29)]
    assert log.shard.group_ids == ()


def test_a_commit_that_the_group_refuses_is_refused_for_all_partitions():
    said = Log().with_a_group().hears(
        OffsetCommit(**ASKED, group_id="g", principal=ANA, offsets=OFFSETS, generation_id=3, member_id="m")
    )  # fmt: skip
    assert codes(said) == [("t", 0, 25), ("u", 0, 29), ("t", 1, 25)]


def test_a_fetch_returns_topics_that_may_be_described():
    said = Log().with_a_group().hears(OF_A_GROUP["fetch"](group_id="g", principal=ANA))
    assert codes(said) == [("u", 0, 29), ("t", 0, 0), ("t", 1, 0)]
    assert [p.offset for p in said.partitions] == [-1, 5, 5]


def test_a_fetch_of_all_topics_leaves_the_others_out_without_an_error():
    log = Log().with_a_group()
    (reply,) = log.ask(OF_A_GROUP["fetch all"](group_id="g", principal=ANA))
    assert codes(reply.answer) == [("t", 0, 0), ("t", 1, 0)]


def test_offsets_are_deleted_of_topics_that_may_be_read():
    log = Log().with_a_group()
    said = log.hears(OF_A_GROUP["delete offsets"](group_id="g", principal=ANA))
    assert codes(said) == [("u", 0, 29), ("t", 0, 0), ("t", 1, 0)]
    assert [t for t, _, _ in log.shard.group("g").all_offsets()] == ["u", "u"]


def test_a_deletion_that_the_group_refuses_has_no_partitions():
    said = Log().hears(OF_A_GROUP["delete offsets"](group_id="g", principal=ANA))
    assert (said.code, said.partitions) == (69, ())


# -- listings ----------------------------------------------------------------------------------------------------------


def test_a_listing_has_groups_that_may_be_described_and_is_never_refused():
    rules = (allow(ANA, "DESCRIBE"), allow("User:bo", "DESCRIBE", "kafka-cluster", of="CLUSTER"))
    log = Log(rules=rules).with_a_group()
    log.hears(OffsetCommit(**ASKED, group_id="h", principal=ROOT, offsets=OFFSETS))
    shown = {who: log.ask(ListGroups(**ASKED, principal=who)) for who in (ANA, "User:bo", ROOT, EVE)}
    assert {who: [g.group_id for g in reply.answer.groups] for who, (reply,) in shown.items()} == {
        ANA: ["g"], "User:bo": ["g", "h"], ROOT: ["g", "h"], EVE: [],
    }  # fmt: skip


# -- the rules themselves ----------------------------------------------------------------------------------------------


def test_rules_are_set_with_alter_on_the_cluster():
    log = Log(rules=(allow(ANA, "ALTER", "kafka-cluster", of="CLUSTER"),))
    assert log.hears(SetAccess(**ASKED, principal=EVE, made_ms=2, rules=RULES)).code == 31
    changed, reply = log.ask(SetAccess(**ASKED, principal=ANA, made_ms=2, rules=RULES))
    assert (reply.answer.code, reply.answer.made_ms) == (0, 2)
    assert isinstance(changed, AccessChanged)
    assert (changed.principal, changed.rules, changed.partition, changed.version) == (ANA, 3, 0, None)
    assert log.hears(SetAccess(**ASKED, principal=ANA, made_ms=3, rules=())).code == 31, "the new rules apply"
    assert log.hears(DescribeAccess(**ASKED, principal=ANA)).code == 31
    assert log.hears(DescribeAccess(**ASKED, principal=ROOT)).rules == RULES


def test_earlier_rules_do_not_come_back():
    """With a copy of an old record, or two administrators at once, every shard ends with the same rules."""
    log = Log()
    assert log.hears(SetAccess(**ASKED, principal=ROOT, made_ms=5, rules=RULES)).code == 0
    before = log.shard.to_bytes()
    for made_ms, rules in ((4, ()), (5, ()), (1, RULES)):
        assert log.hears(SetAccess(**ASKED, principal=ROOT, made_ms=made_ms, rules=rules)).error == "INVALID_REQUEST"
    again = log.ask(SetAccess(**ASKED, principal=ROOT, made_ms=5, rules=RULES))
    assert [output.answer.code for output in again] == [0], "a repeated record changes nothing, and is not an event"
    assert log.shard.to_bytes() == before


def test_rules_of_the_future_are_refused():
    log = Log()
    most = log.now_ms + RULES_AHEAD_MS
    assert log.hears(SetAccess(**ASKED, principal=ROOT, made_ms=most + 1, rules=())).error == "INVALID_REQUEST"
    assert log.hears(SetAccess(**ASKED, principal=ROOT, made_ms=most, rules=())).code == 0


def test_rules_outlive_the_last_group():
    """A shard without groups but with rules has a state."""
    log = Log()
    assert not log.shard.is_blank
    assert log.shard.next_deadline_ms is None
    again = Shard(0, 1, SECRET, CONFIG, log.shard.to_bytes())
    outputs = again.step([Received(9, 0, OF_A_GROUP["join"](group_id="g", principal=ANA))], 0)
    assert [output.answer.code for output in outputs if isinstance(output, Reply)] == [0]


def test_a_client_can_read_its_own_rights():
    log = Log()
    asked = [("READ", "GROUP", "g"), ("READ", "GROUP", "h"), ("DESCRIBE", "TOPIC", "seen"), ("READ", "TOPIC", "seen")]
    actions = tuple(Action(Operation(o), Resource(r), name) for o, r, name in asked)
    (reply,) = log.ask(CheckAccess(**ASKED, principal=ANA, actions=actions))
    assert reply.answer.allowed == (True, False, True, False)


# -- state and replay --------------------------------------------------------------------------------------------------


def test_a_thousand_rules_take_little_space():
    rules = tuple(allow(f"User:service-{n}", "READ", f"orders-{n}", pattern="PREFIXED") for n in range(1_000))
    written = codec.encode_access(Access(1, rules))
    assert len(written) < 25_000
    assert codec.decode_access(written).rules == rules


WHO = st.sampled_from([ANA, EVE, ROOT, None])
requests = st.one_of(
    st.builds(
        lambda kind, group_id, who: OF_A_GROUP[kind](group_id=group_id, principal=who),
        st.sampled_from(sorted(OF_A_GROUP)), st.sampled_from(["g", "h"]), WHO,
    ),
    st.builds(lambda who: ListGroups(**ASKED, principal=who), WHO),
    st.builds(
        lambda who, made_ms, rules: SetAccess(**ASKED, principal=who, made_ms=made_ms, rules=tuple(rules)),
        st.sampled_from([ROOT, EVE]), st.integers(1, 9), st.lists(st.sampled_from(RULES), max_size=3),
    ),
)  # fmt: skip
logs = st.lists(st.tuples(requests, st.integers(0, 6_000)), max_size=14)


def received(log: list[tuple[Request, int]]) -> list[Received]:
    at_ms, out = 0, []
    for offset, (request, later_ms) in enumerate(log):
        at_ms += later_ms
        out.append(Received(offset, at_ms, msgspec.structs.replace(request, request_id=str(offset))))
    return out


@settings(max_examples=150, deadline=None)
@given(logs, st.lists(st.booleans(), min_size=14, max_size=14))
def test_a_log_with_rules_gives_the_same_outputs_for_any_cuts(log: Any, cuts: list[bool]):
    """I16, I17, I18: in one batch, in many, and by a shard that is encoded and decoded between them.

    Late notices are excluded, because they depend on the batch's time.
    """
    asked = received(log)
    end_ms = asked[-1].at_ms if asked else 0
    whole = Shard(0, 1, SECRET, UNHURRIED)
    at_once = whole.step(asked, end_ms)
    state: bytes | None = None
    one_by_one: list[Output] = []
    batch: list[Received] = []
    for each, is_cut in zip(asked, [*cuts[: len(asked) - 1], True], strict=False):
        batch.append(each)
        if is_cut:
            shard = Shard(0, 1, SECRET, UNHURRIED, state)
            one_by_one += shard.step(batch, each.at_ms)
            state, batch = shard.to_bytes(), []
    if asked:
        assert sorted(map(repr, one_by_one)) == sorted(map(repr, at_once))
        assert Shard(0, 1, SECRET, UNHURRIED, state).to_bytes() == whole.to_bytes()


@settings(max_examples=150, deadline=None)
@given(logs)
def test_a_log_without_its_refused_requests_gives_the_same_outputs(log: Any):
    """A request that is refused as a whole changes no other output."""
    asked = received(log)
    end_ms = asked[-1].at_ms if asked else 0
    shard = Shard(0, 1, SECRET, CONFIG)
    outputs = shard.step(asked, end_ms)
    refused = {o.answer.request_id for o in outputs if isinstance(o, Reply) and o.answer.code in (30, 31)}
    rest = Shard(0, 1, SECRET, CONFIG)
    others = rest.step([wake(r.at_ms) if r.request.request_id in refused else r for r in asked], end_ms)
    kept = [
        o
        for o in outputs
        if not (isinstance(o, Reply) and o.answer.request_id in refused)
        and not (isinstance(o, AccessDenied) and o.resource != "TOPIC")
    ]
    assert kept == others
    assert rest.to_bytes() == shard.to_bytes()


def test_a_conversation_with_access_rules_keeps_every_promise():
    """I16 to I18, by every checker of the core: an allowed member and one without access."""
    s = Scenario(access="rules", super_users=("User:root",))
    s.ask("root", SetAccess, group_id="", principal="User:root", made_ms=1, rules=RULES)
    s.join("a", principal=ANA).sync("a", principal=ANA, plan={"a": {"t": [0]}}).is_("Stable")
    s.heartbeat("a", principal=ANA).join("e", principal=EVE)
    assert [s.said.code, s.group.generation_id] == [30, 1]
    s.heartbeat("a", principal=EVE)
    assert s.said.code == 30
    s.until(60_000).is_("Empty")
