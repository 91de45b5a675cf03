"""Tests of signatures of records, and of the treatment of wrong ones (promises.md 6)."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from coordinator.base.access import ANONYMOUS, UNKNOWN_HOST
from coordinator.base.config import Config
from coordinator.base.hashing import shard_of
from coordinator.messages.heartbeats import Heartbeat, Heartbeats
from coordinator.messages.requests import JoinGroup, OffsetCommit, Protocol, Received, SetAccess, Unreadable
from streaming.client.config import configure_member
from streaming.config.settings import BadSettings, Settings
from streaming.query.operator.operator import ShardOperator
from streaming.wire.records import OutputTopics, decode_answer, decode_event, decode_request, encode_request
from streaming.wire.signing import AGE_MS_MAX, FAR, UNSIGNED, WRONG, Signer, Signing
from tests.coordinator.test_access import allow, deny
from tests.streaming.query.fake_spark import FakeSpark

KEY, NEXT_KEY = b"k" * 32, b"n" * 32
NOW_MS = 1_700_000_000_000
SIGNING = Signing((KEY,), "requests")
BEAT = Heartbeat(request_id="1", reply_to="inbox", group_id="g", generation_id=1, member_id="m", principal="User:ana")
VALUE = SIGNING.signed(BEAT, NOW_MS)


def doubt(value: bytes, at_ms: int = NOW_MS, signing: Signing = SIGNING) -> str | None:
    received = signing.received(7, at_ms, value)
    assert (received.offset, received.at_ms, received.request) == (7, at_ms, decode_request(value))
    return received.doubt


def test_a_signed_record_is_trusted_and_unchanged() -> None:
    assert doubt(VALUE) is None
    assert decode_request(VALUE) == BEAT, "a reader that ignores signatures reads the same request"
    assert SIGNING.received(7, NOW_MS, VALUE) == Received(7, NOW_MS, BEAT, None, len(VALUE))


FORGERIES: dict[str, Callable[[], bytes]] = {
    "another principal": lambda: VALUE.replace(b"User:ana", b"User:bob"),
    "another group": lambda: VALUE.replace(b'"group_id":"g"', b'"group_id":"h"'),
    "another generation": lambda: VALUE.replace(b'"generation_id":1', b'"generation_id":2'),
    "a field behind it": lambda: VALUE.replace(b"}\n", b',"client_host":"/10.0.0.1"}\n'),
    "blanks before it": lambda: b" " + VALUE,
    "a signature of another record": lambda: encode_request(BEAT) + Signing((KEY,), "requests").signed(
        structs.replace(BEAT, group_id="h"), NOW_MS)[-57:],
    "another time": lambda: VALUE[:-56] + SIGNING.signed(BEAT, NOW_MS + 1)[-56:-40] + VALUE[-40:],
    "a signature of nothing": lambda: VALUE[:-56] + b"A" * 54 + b"==",
    "no base64": lambda: VALUE[:-56] + b"!" * 54 + b"==",
    "another key": lambda: Signing((NEXT_KEY,), "requests").signed(BEAT, NOW_MS),
    "another coordinator's topic": lambda: Signing((KEY,), "others").signed(BEAT, NOW_MS),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_changed_record_is_not_trusted(forgery: str) -> None:
    assert doubt(FORGERIES[forgery]()) == WRONG


def test_a_record_with_a_flipped_bit_is_not_trusted() -> None:
    """A changed record that can still be read is in doubt."""
    for at in range(len(VALUE)):
        changed = bytearray(VALUE)
        changed[at] ^= 1
        received = SIGNING.received(7, NOW_MS, bytes(changed))
        assert isinstance(received.request, Unreadable) or received.doubt in (WRONG, UNSIGNED), at


def test_a_cut_record_is_not_trusted() -> None:
    """A record that is cut anywhere is not a request, or is in doubt."""
    for length in range(len(VALUE)):
        received = SIGNING.received(7, NOW_MS, VALUE[:length])
        assert isinstance(received.request, Unreadable) or received.doubt in (WRONG, UNSIGNED), length


@pytest.mark.parametrize(("late_ms", "why"), [
    (0, None), (AGE_MS_MAX, None), (-AGE_MS_MAX, None), (AGE_MS_MAX + 1, FAR), (-AGE_MS_MAX - 1, FAR),
])  # fmt: skip
def test_a_record_is_trusted_only_near_the_time_of_its_signature(late_ms: int, why: str | None) -> None:
    """A copy that somebody writes again later is not trusted."""
    assert doubt(VALUE, NOW_MS + late_ms) == why


def test_an_unsigned_record_is_trusted_only_without_a_principal() -> None:
    assert doubt(encode_request(BEAT)) == UNSIGNED
    assert doubt(encode_request(structs.replace(BEAT, principal=None))) is None


def test_the_host_of_an_unsigned_record_is_ignored() -> None:
    """A client that may write to the topic may write any host."""
    unsigned = structs.replace(BEAT, principal=None, client_host="/10.0.0.1")
    for request in (unsigned, structs.replace(unsigned, principal="User:ana")):
        received = SIGNING.received(7, NOW_MS, encode_request(request))
        assert received.request == structs.replace(request, client_host="")
    assert SIGNING.received(7, NOW_MS, SIGNING.signed(unsigned, NOW_MS)).request == unsigned, (
        "the host of a signed record is trusted"
    )


def test_a_record_of_heartbeats_needs_a_signature_for_principals_and_hosts() -> None:
    record = Heartbeats.of([structs.replace(BEAT, principal="User:eve", client_host="/10.0.0.9")] * 2,
                           request_id="r", reply_to="in")  # fmt: skip
    assert SIGNING.received(7, NOW_MS, encode_request(record)).doubt == UNSIGNED
    hosts_only = structs.replace(record, principals=())
    received = SIGNING.received(7, NOW_MS, encode_request(hosts_only))
    assert isinstance(received.request, Heartbeats)
    assert (received.doubt, {beat.client_host for beat in received.request.each()}) == (None, {UNKNOWN_HOST})
    signed = SIGNING.received(7, NOW_MS, SIGNING.signed(record, NOW_MS))
    assert (signed.doubt, signed.request) == (None, record)


def test_keys_can_be_replaced_one_process_after_the_other() -> None:
    """First every process gets the new key, then processes sign with it, then the old key is removed."""
    old, both, new = (Signing(keys, "requests") for keys in ((KEY,), (NEXT_KEY, KEY), (NEXT_KEY,)))
    assert doubt(old.signed(BEAT, NOW_MS), signing=both) is None
    assert doubt(both.signed(BEAT, NOW_MS), signing=new) is None
    assert doubt(old.signed(BEAT, NOW_MS), signing=new) == WRONG


@pytest.mark.parametrize(
    "value", [None, b"", b"=", b"\n" + b"=" * 56, b'{"kind":"wake","x":1}', b"{}\n" + b"A" * 55 + b"=", b"\xff=" * 60]
)
def test_an_unreadable_record_never_raises(value: bytes | None) -> None:
    assert isinstance(SIGNING.received(7, NOW_MS, value).request, Unreadable)


def test_a_signer_adds_its_principal_to_a_request_without_one() -> None:
    signer = Signer(SIGNING, "User:root")
    without_principal = structs.replace(BEAT, principal=None)
    assert decode_request(signer.value_of(without_principal, NOW_MS)).principal == "User:root"
    assert decode_request(signer.value_of(BEAT, NOW_MS)).principal == "User:ana"
    assert Signer(None, "User:root").value_of(without_principal, NOW_MS) == encode_request(without_principal), (
        "without a key no principal is added"
    )


# -- the key -----------------------------------------------------------------------------------------------------------

SECRET = "a-very-secret-key-of-more-than-32-bytes"


def test_no_object_shows_the_key(tmp_path: Path) -> None:
    """I23: no repr shows the key, and the pickled operator that Spark runs does not contain it."""
    (file := tmp_path / "key").write_text(f"{SECRET}\n")
    settings = Settings.load(access="rules", access_key_file=str(file), super_users=["User:root"])
    signer = settings.signer_at("coordinator")
    operator = ShardOperator(
        1, b"s" * 16, settings.group_config(), OutputTopics("r", "g", "e", "q"), settings.signing()
    )
    client = configure_member({"group_id": "g", "access_key_file": str(file), "principal": "User:ana"})
    client_signer = client.signer_at()("coordinator")
    for each in (settings, signer, settings.signing(), operator, client, client_signer, settings.model_dump()):
        assert SECRET not in repr(each)
    assert SECRET.encode() not in pickle.dumps(operator)
    assert client_signer.value_of(BEAT, NOW_MS) == signer.value_of(BEAT, NOW_MS), "the client has the same key"
    there = client.signer_at()("B").value_of(BEAT, NOW_MS)
    assert there == settings.signer_at("B").value_of(BEAT, NOW_MS) != signer.value_of(BEAT, NOW_MS)


@pytest.mark.parametrize(("flags", "sentence"), [
    ({"access": "rules"}, "access = rules needs an access_key_file"),
    ({"access_key": "too short"}, "access_key must contain a key of 32 bytes or more"),
    ({"access_key": f"{SECRET} short"}, "32 bytes or more"),
    ({"access_key": SECRET, "access_key_file": __file__}, "two keys"),
    ({"access_key_file": "no/such/file"}, "no/such/file cannot be read"),
    ({"access": "closed"}, "Input should be 'open' or 'rules'"),
    ({"super_users": ["root"]}, "super_users.0: String should match"),
])  # fmt: skip
def test_an_invalid_setting_is_reported_without_the_secret(flags: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadSettings, match=sentence) as refused:
        Settings.load(**flags)
    assert SECRET not in str(refused.value)


def test_access_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COORDINATOR_ACCESS", "rules")
    monkeypatch.setenv("COORDINATOR_ACCESS_KEY", SECRET)
    monkeypatch.setenv("COORDINATOR_SUPER_USERS", '["User:root"]')
    settings = Settings.load()
    assert (settings.group_config().access, settings.group_config().super_users) == ("rules", ("User:root",))
    assert doubt(settings.signer_at("coordinator").value_of(BEAT, NOW_MS), signing=settings.signing()) is None


# -- the operator ------------------------------------------------------------------------------------------------------


def test_the_operator_trusts_signed_records_and_refuses_the_others() -> None:
    """A forged record never stops the batch: it is answered with 30, and an event has the reason."""
    signing = Signing((KEY,), "requests")
    config = Config(access="rules", super_users=("User:root",))
    spark = FakeSpark(
        ShardOperator(4, b"a secret of some length", config, OutputTopics("r", "g", "events", "q"), signing)
    )
    home = shard_of("g", 4)
    rules = SetAccess(
        request_id="0", reply_to="inbox", principal="User:root", made_ms=1, rules=(allow("User:ana", "READ"),)
    )
    values = [
        signing.signed(rules, NOW_MS),
        VALUE,
        encode_request(BEAT),
        VALUE.replace(b"User:ana", b"User:eve"),
        signing.signed(structs.replace(BEAT, principal="User:eve"), NOW_MS),
        b'{"kind":"wake"}',
        b"{" + VALUE,
    ]
    rows = spark.batch(NOW_MS, [(home, offset, NOW_MS, value) for offset, value in enumerate(values)])
    codes = [decode_answer(value).code for value in rows[rows["topic"] == "r"]["value"]]
    assert codes == [0, 25, 30, 30, 30]
    events = [decode_event(value) for value in rows[rows["topic"] == "events"]["value"]]
    assert [getattr(event, "why", "") for event in events][1:4] == [UNSIGNED, WRONG, None]


HERE, ELSEWHERE = "/10.0.0.1", "/10.0.0.2"
BY_HOST = {
    # rules                                          response to an unsigned record, and to a signed one from HERE
    "allowed from here":      ([allow(ANONYMOUS, "READ", host="10.0.0.1")],                        30, 0),
    "allowed from anywhere":  ([allow(ANONYMOUS, "READ")],                                         0,  0),
    "denied elsewhere":       ([allow(ANONYMOUS, "READ"), deny("User:*", "READ", host="10.0.0.2")], 30, 0),
    "denied here":            ([allow(ANONYMOUS, "READ"), deny("User:*", "READ", host="10.0.0.1")], 30, 30),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HOST)
@pytest.mark.parametrize("host", [HERE, ELSEWHERE, "", "/", "10.0.0.1", "x/10.0.0.1"])
def test_an_unsigned_host_does_not_pass_rules_by_host(name: str, host: str) -> None:
    """A record without a signed host may come from any host: permissions by host do not apply to it, denials do."""
    rules, unsigned, signed = BY_HOST[name]
    signing = Signing((KEY,), "requests")
    config = Config(access="rules", super_users=("User:root",), group_initial_rebalance_delay_ms=0)
    spark = FakeSpark(
        ShardOperator(4, b"a secret of some length", config, OutputTopics("r", "g", "events", "q"), signing)
    )
    table = SetAccess(request_id="0", reply_to="inbox", principal="User:root", made_ms=1, rules=tuple(rules))
    commit = OffsetCommit(request_id="1", reply_to="inbox", group_id="g", client_host=host, offsets=())
    values = [
        signing.signed(table, NOW_MS),
        encode_request(commit),
        signing.signed(structs.replace(commit, client_host=HERE), NOW_MS),
    ]
    records = [(shard_of("g", 4), offset, NOW_MS, value) for offset, value in enumerate(values)]
    rows = spark.batch(NOW_MS, records)
    codes = [decode_answer(value).code for value in rows[rows["topic"] == "r"]["value"]]
    assert [code == 30 for code in codes] == [False, unsigned == 30, signed == 30]


def test_records_published_for_an_unsigned_join_have_no_host() -> None:
    signing = Signing((KEY,), "requests")
    config = Config(access="rules", super_users=("User:root",), group_initial_rebalance_delay_ms=0)
    spark = FakeSpark(
        ShardOperator(4, b"a secret of some length", config, OutputTopics("r", "g", "events", "q"), signing)
    )
    table = SetAccess(
        request_id="0", reply_to="inbox", principal="User:root", made_ms=1, rules=(allow(ANONYMOUS, "READ"),)
    )
    join = JoinGroup(
        request_id="1", reply_to="inbox", group_id="g", client_host=HERE, session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000, protocol_type="work", protocols=(Protocol("share"),),
        require_known_member_id=False,
    )  # fmt: skip
    values = [signing.signed(table, NOW_MS), encode_request(join)]
    rows = spark.batch(NOW_MS, [(shard_of("g", 4), offset, NOW_MS, value) for offset, value in enumerate(values)])
    published_bytes = b"".join(value for value in rows[rows["topic"].isin(["g", "events"])]["value"])
    assert b"member_joined" in published_bytes
    assert b"10.0.0.1" not in published_bytes
