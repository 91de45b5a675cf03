"""Which topics a Fetch is about where it does not name them all: incremental fetches, and topics by their ids.

A session (KIP-227) is kept by a broker, which answers for its topics whoever shows its number. So a connection may use
those sessions only that were given to itself, and what it has asked for in them is remembered. For a number that is not
known here, as after a reconnect, the client is told that there is no such session, and begins a new one.

A topic's id (KIP-516) is known from the answers of brokers to Metadata, from which clients have it as well.
"""

from collections.abc import Callable, Collection
from struct import Struct

from kafka.protocol.consumer import FetchRequest

from streaming.gateway.messages import CLIENT_ID_AT, INT32, VARINT_BYTES_MAX, Reading

SESSIONS_MAX = 4
"""Sessions of one connection; beyond it the oldest is forgotten. A client has one with each broker."""

SESSION_TOPICS_MAX = 1_000
"""Topics of one session that are remembered. Sessions of more are not: each fetch then names its topics."""

TOPIC_IDS_MAX = 200_000
"""Topics whose ids are remembered; beyond it the one that was told of first is forgotten."""

_ANSWER = Struct(">i4xhi")
"""The correlation id, the time to wait, the error and the session, in versions that are not flexible."""

_FLEXIBLE_ANSWER = Struct(">ix4xhi")
FIRST_WITH_SESSIONS = 7
_BEFORE_SESSION = 17
"""Bytes of a Fetch before its session: the replica, the time to wait, two sizes, the isolation."""


class FetchSessions:
    """The sessions that brokers have given to one connection, and the topics asked for in each."""

    def __init__(self) -> None:
        self._topics: dict[int, set[str]] = {}

    def topics_of(self, session_id: int) -> Collection[str] | None:
        """Return what a session is about; None where it was not given to this connection."""
        return self._topics.get(session_id)

    def add(self, session_id: int, topics: Collection[str]) -> None:
        """Remember that more topics were asked for in a session that is known."""
        known = self._topics[session_id]
        known.update(topics)
        if len(known) > SESSION_TOPICS_MAX:
            del self._topics[session_id]

    def reads_session(self, version: int, topics: Collection[str]) -> Callable[[memoryview], bool] | None:
        """Return what is to be called with the beginning of the answer to a Fetch that names all its topics.

        It returns whether that was enough of the answer, and raises a ValueError where the answer cannot be read.
        """
        if version < FIRST_WITH_SESSIONS or len(topics) > SESSION_TOPICS_MAX:
            return None
        is_flexible = FetchRequest.flexible_version_q(version)

        def read(head: memoryview) -> bool:
            form = _FLEXIBLE_ANSWER if is_flexible else _ANSWER
            if len(head) < form.size + VARINT_BYTES_MAX:
                return False
            if is_flexible and head[4]:
                raise ValueError("a broker's answer has tags in its header")
            _, _, session_id = form.unpack_from(head)
            if session_id:
                self._topics.pop(session_id, None)
                self._topics[session_id] = set(topics)
                while len(self._topics) > SESSIONS_MAX:
                    del self._topics[next(iter(self._topics))]
            return True

        return read


def showing_no_session(frame: bytes, version: int) -> bytes:
    """Return a Fetch, of a version with sessions, whose session is 0: none."""
    reading = Reading(frame, CLIENT_ID_AT)
    reading.text()
    if FetchRequest.flexible_version_q(version):
        reading.skip_tags()
    start = reading.position + _BEFORE_SESSION
    return frame[:start] + bytes(INT32.size) + frame[start + INT32.size :]


class TopicIds:
    """The names of topics by their ids."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with that id; None where no broker has told of it."""
        return self._names.get(topic_id)

    def learn(self, topic_id: bytes, name: str) -> None:
        """Take a topic's id from an answer of a broker's."""
        self._names[topic_id] = name
        if len(self._names) > TOPIC_IDS_MAX:
            del self._names[next(iter(self._names))]
