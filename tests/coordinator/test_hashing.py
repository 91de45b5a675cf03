"""Hashes that other programs compute as well, and ids that cannot be guessed."""

import string

import pytest
from kafka.partitioner.default import murmur2 as theirs

from coordinator.base.hashing import java_hash, member_suffix, murmur2, shard_of

# From Kafka's UtilsTest.testMurmur2, as signed numbers.
KAFKAS_OWN = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def signed(number: int) -> int:
    return number - 2**32 if number >= 2**31 else number


@pytest.mark.parametrize(("text", "expected"), KAFKAS_OWN.items())
def test_murmur2_is_kafkas(text: str, expected: int):
    """S17: every Kafka producer finds a group's partition."""
    assert signed(murmur2(text.encode())) == expected


@pytest.mark.parametrize("length", range(20))
def test_murmur2_is_kafka_pythons_for_every_tail(length: int):
    """S17: the hash is that of kafka-python for every length of the last block."""
    for data in ((string.ascii_letters[:length]).encode(), b"\xff" * length, b"\x00" * length, bytes(range(length))):
        assert murmur2(data) == theirs(data)


@pytest.mark.parametrize("group_id", ["g", "my-group", "消费者组", "😀", "x" * 249])
@pytest.mark.parametrize("shards", [1, 3, 16, 50])
def test_a_groups_shard_is_that_of_kafkas_default_partitioner(group_id: str, shards: int):
    """S17, S19, S23: the shard of a group is the partition of its id."""
    assert shard_of(group_id, shards) == (theirs(group_id.encode()) & 0x7FFFFFFF) % shards


def test_groups_spread_over_all_shards():
    """S23: 100 groups over 16 shards."""
    assert {shard_of(f"group-{n}", 16) for n in range(100)} == set(range(16))


# protocol.md 5: group id and hash.
JAVA = [
    ("", 0),
    ("a", 97),
    ("Aa", 2112),
    ("BB", 2112),
    ("foo", 101574),
    ("my-group", -1906497762),
    ("test-group", 627841412),
    ("group-id", 506313513),
    ("consumer-group-1", 147483020),
    ("console-consumer-12345", 158455506),
    ("order-service", 562889526),
    ("polygenelubricants", -2147483648),
    ("GydZG_", -2147483648),
    ("DESIGNING WORKHOUSES", -2147483648),
    ("ünïcode", -609351766),
    ("消费者组", 871131088),
    ("グループ", 383750870),
    ("😀", 1772899),
    ("group-😀-1", -1358452523),
]


@pytest.mark.parametrize(("text", "expected"), JAVA, ids=[row[0] or "empty" for row in JAVA])
def test_java_hash(text: str, expected: int):
    """S18: the hash is over UTF-16 units, so a smiley counts as two."""
    assert signed(java_hash(text)) == expected


def test_java_hash_accepts_half_a_surrogate_pair():
    """As Java does. JSON cannot contain one, other callers may."""
    assert java_hash("\ud83d") == 0xD83D


def test_a_member_id_depends_only_on_its_place_in_the_log():
    """S36: a repeated batch assigns the same id again."""
    suffix = member_suffix(b"secret of sixteen", "g", (3, 7))
    assert suffix == member_suffix(b"secret of sixteen", "g", (3, 7))
    others = [
        member_suffix(b"another secret, of", "g", (3, 7)),
        member_suffix(b"secret of sixteen", "h", (3, 7)),
        member_suffix(b"secret of sixteen", "g", (4, 7)),
        member_suffix(b"secret of sixteen", "g", (3, 8)),
        member_suffix(b"secret of sixteen", "7/g", (3, 7)),
    ]
    assert len({suffix, *others}) == 6


def test_a_member_id_has_the_form_of_a_uuid():
    """S36: a member id ends with a UUID."""
    assert [len(part) for part in member_suffix(b"secret of sixteen", "g", (3, 7)).split("-")] == [8, 4, 4, 4, 12]
