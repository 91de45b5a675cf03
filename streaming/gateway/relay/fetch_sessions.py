"""The topics of a Fetch that does not contain all their names: incremental fetches, and topics by their ids.

A broker keeps a session (KIP-227), and answers any client that sends the session's number. So a connection may use only
the sessions that were given to itself, and the gateway stores the topics requested in them. For an unknown number, for
example after a reconnect, the client gets the error that the session does not exist, and begins a new one.

A topic's id (KIP-516) is known from brokers' responses to Metadata, from which clients also have it.
"""

from collections.abc import Callable, Collection
from struct import Struct

from kafka.protocol.consumer import FetchRequest

from coordinator.base.binary import INT32, VARINT_BYTES_MAX, Reader
from streaming.gateway.protocol.messages import CLIENT_ID_AT

SESSIONS_MAX = 4
"""The maximum number of sessions of one connection; beyond it the oldest is dropped. A client has one with each
broker."""

SESSION_TOPICS_MAX = 1_000
"""The maximum number of stored topics of one session. Larger sessions are not stored: each fetch then names its
topics."""

TOPIC_IDS_MAX = 200_000
"""The maximum number of topics with stored ids; beyond it the oldest entry is dropped."""

_ANSWER = Struct(">i4xhi")
"""The correlation id, the throttle time, the error and the session, in versions that are not flexible."""

_FLEXIBLE_ANSWER = Struct(">ix4xhi")
FIRST_WITH_SESSIONS = 7
_BEFORE_SESSION = 17
"""Bytes of a Fetch before its session: the replica, the maximum wait time, two sizes, the isolation level."""


class FetchSessions:
    """The sessions that brokers have given to one connection, with the requested topics of each."""

    def __init__(self) -> None:
        self._topics: dict[int, set[str]] = {}

    def topics_of(self, session_id: int) -> Collection[str] | None:
        """Return the topics of a session; None if it was not given to this connection."""
        return self._topics.get(session_id)

    def add(self, session_id: int, topics: Collection[str]) -> None:
        """Add requested topics to a known session."""
        known = self._topics[session_id]
        known.update(topics)
        if len(known) > SESSION_TOPICS_MAX:
            del self._topics[session_id]

    def reads_session(self, version: int, topics: Collection[str]) -> Callable[[memoryview], bool] | None:
        """Return a function for the beginning of the response to a Fetch that names all its topics.

        The function returns whether the beginning was long enough, and raises a ValueError if the response cannot be
        read.
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
    """Return a Fetch, of a version with sessions, with the session 0, which means none."""
    reading = Reader(frame, CLIENT_ID_AT)
    reading.nullable_text()
    if FetchRequest.flexible_version_q(version):
        reading.skip_tags()
    start = reading.position + _BEFORE_SESSION
    return frame[:start] + bytes(INT32.size) + frame[start + INT32.size :]


class TopicIds:
    """The names of topics by their ids."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}

    def name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with that id; None if no broker's response contained it."""
        return self._names.get(topic_id)

    def learn(self, topic_id: bytes, name: str) -> None:
        """Store a topic's id from a broker's response."""
        self._names[topic_id] = name
        if len(self._names) > TOPIC_IDS_MAX:
            del self._names[next(iter(self._names))]
