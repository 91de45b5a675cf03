"""The hash functions that Kafka's protocols fix, and the hash that makes the coordinator's member ids."""

from hashlib import blake2b

MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of a record key that every Kafka producer computes.

    Source: Kafka's `org.apache.kafka.common.utils.Utils.murmur2`.
    """
    m, length = 0x5BD1E995, len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & MASK
        h = (h * m & MASK) ^ ((k ^ k >> 24) * m & MASK)
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & MASK
    h = (h ^ h >> 13) * m & MASK
    return h ^ h >> 15


def shard_of(group_id: str, shards: int) -> int:
    """Return the request partition, and so the shard, of a group: Kafka's default partitioner on its id."""
    return (murmur2(group_id.encode()) & 0x7FFFFFFF) % shards


def _crc32c_entry(index: int) -> int:
    for _ in range(8):
        index = index >> 1 ^ (0x82F63B78 if index & 1 else 0)
    return index


_CRC32C = tuple(map(_crc32c_entry, range(256)))


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of bytes, as Kafka's record batches have it.

    Source: RFC 3720, appendix B.4; `org.apache.kafka.common.utils.Crc32C`.
    """
    crc, table = MASK, _CRC32C
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ MASK


def java_hash(text: str) -> int:
    """Return the hash of Java's `String.hashCode`: over UTF-16 units, as an unsigned 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8 | units[i + 1])) & MASK
    return h


def member_suffix(secret: bytes, group_id: str, first_join: tuple[int | str, int | str]) -> str:
    """Return the part of a member id that makes it unique and impossible to guess.

    The suffix is derived, not drawn at random, so a repeated batch returns the same id again.

    Args:
        first_join: The partition and offset of the first join in the log. If a repeat of that join has to find the
            member that the join has made: the join's reply address and request id.
    """
    first, second = map(_written, first_join)
    derived_from = f"({first}, {second})/{group_id}".encode("utf-8", "surrogatepass")
    digest = blake2b(derived_from, key=secret, digest_size=16).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def _written(value: int | str) -> str:
    """Return a number as text, or text after its length, so that two pairs of texts are never written equally."""
    return str(value) if isinstance(value, int) else f"{len(value)}:{value}"
