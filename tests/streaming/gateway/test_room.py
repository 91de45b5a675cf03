"""The bound on the announced bytes of the large requests that a gateway is relaying."""

from collections.abc import Callable

from streaming.gateway.relay.large_produce import Room


class Bench:
    """Room for 100 bytes, and connections that store their admission."""

    def __init__(self) -> None:
        self.room = Room(100)
        self.admitted: list[str] = []
        self._admits: dict[str, Callable[[], None]] = {}

    def acquire(self, who: str, size: int) -> bool:
        return self.room.acquire(self._admit_of(who), size)

    def release(self, who: str) -> list[str]:
        """Release the room of a connection, and return those that this admits."""
        self.admitted.clear()
        self.room.release(self._admit_of(who))
        return self.admitted

    def _admit_of(self, who: str) -> Callable[[], None]:
        return self._admits.setdefault(who, lambda: self.admitted.append(who))


def test_requests_have_room_up_to_the_bound():
    bench = Bench()
    assert [bench.acquire("ana", 60), bench.acquire("bo", 40), bench.room.is_short] == [True, True, False]
    assert [bench.acquire("cy", 1), bench.room.is_short] == [False, True]
    assert bench.release("bo") == ["cy"]
    assert not bench.room.is_short


def test_request_that_waits_long_is_not_overtaken_by_smaller_ones():
    bench = Bench()
    bench.acquire("ana", 60)
    assert [bench.acquire("bo", 90), bench.acquire("cy", 10)] == [False, False]
    assert bench.release("ana") == ["bo", "cy"]


def test_admitted_request_keeps_its_room_until_it_begins():
    bench = Bench()
    bench.acquire("ana", 100)
    bench.acquire("bo", 100)
    bench.release("ana")
    assert [bench.acquire("cy", 100), bench.acquire("bo", 100)] == [False, True]


def test_closed_connection_no_longer_waits():
    bench = Bench()
    for who in ("ana", "bo", "cy"):
        bench.acquire(who, 50)
    bench.acquire("di", 50)
    assert bench.release("cy") == []
    assert bench.release("ana") == ["di"]


def test_single_request_has_room_whatever_its_size():
    bench = Bench()
    assert bench.acquire("ana", 1_000)
    assert not bench.acquire("bo", 1)


def test_request_that_ends_while_it_is_admitted_admits_the_next():
    """A client may have sent all of its request, which is then relayed at once."""
    room, order = Room(100), list[str]()

    def first() -> None:
        order.append("first")
        room.release(first)

    def second() -> None:
        order.append("second")

    def holder() -> None: ...

    room.acquire(holder, 100)
    room.acquire(first, 100)
    room.acquire(second, 100)
    room.release(holder)
    assert order == ["first", "second"]
