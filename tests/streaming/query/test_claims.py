"""The rules of the lease: of several claims after the same record, the first one counts, for every reader."""

from streaming.query.lease import NOTHING, Claims, Kind, LeaseRecord, decode, encode


def record(kind: Kind, driver: str, term: int, after: int = NOTHING) -> LeaseRecord:
    return LeaseRecord(kind=kind, driver=driver, host=f"host of {driver}", term=term, after=after)


def read(*records: LeaseRecord, first: int = 0) -> Claims:
    claims = Claims()
    for offset, each in enumerate(records, first):
        claims.handle(offset, each)
    return claims


def holder(claims: Claims) -> str | None:
    return None if claims.holder is None else claims.holder.driver


HELD = (record(Kind.CLAIM, "ana", 1), record(Kind.RENEWAL, "ana", 1))


def test_first_of_two_claims_after_the_same_record_counts() -> None:
    claims = read(*HELD, record(Kind.CLAIM, "bo", 2, after=1), record(Kind.CLAIM, "cy", 2, after=1))
    assert (holder(claims), claims.term, claims.last) == ("bo", 2, 2)


def test_claim_does_not_count_after_a_renewal_that_it_has_not_seen() -> None:
    claims = read(*HELD, record(Kind.RENEWAL, "ana", 1), record(Kind.CLAIM, "bo", 2, after=1))
    assert (holder(claims), claims.last) == ("ana", 2)


def test_renewals_of_a_former_holder_count_for_nobody() -> None:
    claims = read(*HELD, record(Kind.CLAIM, "bo", 2, after=1), record(Kind.RENEWAL, "ana", 1))
    assert (holder(claims), claims.last) == ("bo", 2)
    claims.handle(4, record(Kind.RELEASE, "ana", 1))
    assert holder(claims) == "bo"


def test_renewal_of_the_term_of_another_driver_counts_for_nobody() -> None:
    claims = read(*HELD, record(Kind.CLAIM, "bo", 2, after=1), record(Kind.RENEWAL, "ana", 2))
    assert (holder(claims), claims.last) == ("bo", 2)


def test_released_lease_has_no_holder_and_is_claimed_after_the_release() -> None:
    claims = read(*HELD, record(Kind.RELEASE, "ana", 1))
    assert holder(claims) is None
    claim = claims.claim("bo", "host of bo")
    assert (claim.term, claim.after) == (2, 2)
    assert claims.handle(3, claim)
    assert not claims.handle(4, claim), "a claim that comes twice counts once"


def test_stop_of_the_holder_releases_the_lease_and_that_of_another_driver_counts_for_nobody() -> None:
    assert holder(read(*HELD, record(Kind.STOP, "ana", 1))) is None
    assert holder(read(*HELD, record(Kind.STOP, "bo", 1))) == "ana"


def test_reader_from_the_middle_comes_to_the_same_holder_with_the_next_renewal() -> None:
    claims = read(record(Kind.CLAIM, "cy", 3, after=1), record(Kind.RENEWAL, "bo", 2), first=7)
    assert (holder(claims), claims.term, claims.last) == ("bo", 2, 8)


def test_record_survives_the_encoding_and_other_values_are_none() -> None:
    assert decode(encode(HELD[0])) == HELD[0]
    assert [decode(value) for value in (None, b"", b"[]", b'{"kind": "other"}')] == [None] * 4
