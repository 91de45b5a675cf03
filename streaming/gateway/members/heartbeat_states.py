"""The states of one heartbeat of a client at the gateway, of both protocols, and the moves between them.

A client learns of a change from the response to a heartbeat, and sends the next heartbeat only an interval later. With
Kafka, a rebalance consists mostly of these waits. Here a heartbeat may wait in the gateway instead, twice.

*Before it is sent.* The heartbeats of all connections go to the coordinator together, at the ticks of `batching`. A
heartbeat waits for one (`GATHERED`) if its answer will most likely have no more than a code: its member is at rest,
which means that the answer to the last one over this connection had no change.

*After it is answered.* A heartbeat counts when it arrives. A response without a change is held until shortly before the
client's next heartbeat (`HELD`). When a change comes meanwhile, the coordinator sends a notice for the member:

- Classic protocol: the notice answers REBALANCE_IN_PROGRESS, the response that a heartbeat would get at that time.
- Consumer protocol: only the coordinator knows the change. So the gateway sends a heartbeat on the member's behalf
  (`ASKING`), and the held response becomes its answer. Its epoch may be newer than the client's, whose commits are
  accepted nevertheless.

No wait delays another response. The heartbeat that waits is sent, or the held response is, as soon as the client sends
any other request. If a heartbeat on the member's behalf has no answer yet, the response waits for it, for a bounded
time (`LAST_WAIT`): otherwise the client would never get the assignment in it. On a connection with other requests than
a group's no heartbeat waits, because some clients send one request at a time. None waits either when the client is
about to authenticate again (KIP-368): librdkafka sends nothing more before it has all responses.

*A slow coordinator.* A client of the consumer protocol waits for a response no longer than its interval. Shortly before
that it gets an error, and repeats its heartbeat. If each answer came too late, it would get errors only. So a heartbeat
that contains nothing new is not sent: it takes over the one before it, whose answer comes later (`LATE`) or is here
already (`STORED`). For the coordinator and the client the two are one heartbeat with a late response. A client may also
connect again and repeat its heartbeat there: that one waits for the answer to the first (`BLOCKED`), see `outstanding`.

Every legal change is a row of `TABLE`. A missing row is a bug of the gateway, never a client's mistake.
`heartbeat_scheduler` moves a heartbeat from state to state and has the actions, and `heartbeat_protocols` has the
differences between the protocols.

Source: KIP-848; the bounds of clients are those that librdkafka and Java's consumer were seen to have.
"""

from enum import Enum


class State(Enum):
    """The state of a heartbeat. In `GATHERED`, `HELD`, `ASKING` or `LAST_WAIT` it is the only one of its connection."""

    NEW = "it was read; the facts about its topics may be missing"
    OVERDUE = "as `NEW`, but its client has had an error"
    BLOCKED = "a heartbeat of its member over another connection has no answer"
    GATHERED = "it waits for a tick"
    SENT = "the coordinator's answer is awaited"
    REPEATED = "it was sent again, with the facts for which the coordinator has asked"
    LATE = "its client has had an error; the answer is awaited, for the member's next heartbeat"
    STORED = "as `LATE`, and the answer is here"
    HELD = "it is answered without a change, and the response waits"
    ASKING = "as `HELD`, and a heartbeat on the member's behalf has no answer"
    LAST_WAIT = "as `ASKING`, but the response must be sent as soon as that answer has come"
    DONE = "nothing waits for it any more"

    __hash__ = object.__hash__  # each heartbeat looks up the table several times; the default hash is slow


HOLDS = (State.HELD, State.ASKING, State.LAST_WAIT)
"""The states of a heartbeat whose response is held."""


class Event(Enum):
    """The cause of a change, as it completes a sentence with "when"."""

    MUST_BE_FULL = "its client has to send all fields first"
    ELSEWHERE = "a heartbeat of its member over another connection has no answer"
    SAYS_NOTHING_NEW = "it says nothing new, and the one before it is late"
    MAY_WAIT = "its member is at rest"
    MAY_NOT_WAIT = "it has to be sent at once"
    UNBLOCKED = "the other one has its answer"
    TAKEN_OVER = "the member's next heartbeat says nothing new"
    ANSWER = "an answer of the coordinator comes"
    LACKS_FACTS = "the answer asks for facts about topics"
    UNCHANGED = "the answer has no change, and the response may wait"
    CHANGED = "the client gets the answer at once"
    FAILED = "the answer is an error"
    REBALANCE_NOTICE = "a rebalance notice for its member comes (classic protocol)"
    ASSIGNMENT_NOTICE = "an assignment notice for its member comes (consumer protocol)"
    OTHER_REQUEST = "the client sends another request"
    TIMER = "its time is over"
    CLOSED = "the connection is closed"

    __hash__ = object.__hash__


class Action(Enum):
    """The gateway's action at a change: a method of `HeartbeatScheduler`."""

    NOTHING = "nothing"
    DECIDE = "decide again whether it is sent"
    GATHER = "send it at a tick"
    SEND = "send it"
    SEND_NOW = "send it, if it still waits for the tick"
    TAKE_OVER = "answer it in place of the one before it"
    CLASSIFY = "find out whether the answer has a change"
    STORE = "store the answer"
    REPEAT = "send it again with the facts"
    RESPOND = "send the response"
    GIVE_UP = "send the response COORDINATOR_NOT_AVAILABLE"
    HOLD = "hold the response"
    ASK = "send a heartbeat on the member's behalf"
    COMPARE = "find out whether the newer answer has a change"
    AWAIT_LAST = "wait for the newer answer until the client would give up"
    RELEASE = "send the held response"
    REPLACE = "send the response in place of the held one"
    FAIL = "send an error in place of the held response; not to a member that has just joined"
    FORGET = "forget it"


TABLE: dict[tuple[State, Event], tuple[Action, State]] = {
    # a heartbeat in ...  when ...                  needs this action,   and is then in ...
    (State.NEW,       Event.MUST_BE_FULL):      (Action.RESPOND,    State.DONE),
    (State.NEW,       Event.ELSEWHERE):         (Action.NOTHING,    State.BLOCKED),
    (State.NEW,       Event.SAYS_NOTHING_NEW):  (Action.TAKE_OVER,  State.DONE),
    (State.NEW,       Event.MAY_WAIT):          (Action.GATHER,     State.GATHERED),
    (State.NEW,       Event.MAY_NOT_WAIT):      (Action.SEND,       State.SENT),
    (State.NEW,       Event.TIMER):             (Action.GIVE_UP,    State.OVERDUE),
    (State.OVERDUE,   Event.MUST_BE_FULL):      (Action.NOTHING,    State.DONE),
    (State.OVERDUE,   Event.ELSEWHERE):         (Action.NOTHING,    State.DONE),
    (State.OVERDUE,   Event.MAY_NOT_WAIT):      (Action.SEND,       State.LATE),
    (State.BLOCKED,   Event.UNBLOCKED):         (Action.DECIDE,     State.NEW),
    (State.BLOCKED,   Event.TIMER):             (Action.GIVE_UP,    State.DONE),

    (State.GATHERED,  Event.ANSWER):            (Action.CLASSIFY,   State.SENT),
    (State.GATHERED,  Event.REBALANCE_NOTICE):  (Action.RESPOND,    State.DONE),
    (State.GATHERED,  Event.ASSIGNMENT_NOTICE): (Action.SEND_NOW,   State.SENT),
    (State.GATHERED,  Event.OTHER_REQUEST):     (Action.SEND_NOW,   State.SENT),
    (State.GATHERED,  Event.TIMER):             (Action.GIVE_UP,    State.LATE),
    (State.SENT,      Event.ANSWER):            (Action.CLASSIFY,   State.SENT),
    (State.SENT,      Event.LACKS_FACTS):       (Action.REPEAT,     State.REPEATED),
    (State.SENT,      Event.UNCHANGED):         (Action.HOLD,       State.HELD),
    (State.SENT,      Event.CHANGED):           (Action.RESPOND,    State.DONE),
    (State.SENT,      Event.TIMER):             (Action.GIVE_UP,    State.LATE),
    (State.REPEATED,  Event.ANSWER):            (Action.CLASSIFY,   State.REPEATED),
    (State.REPEATED,  Event.LACKS_FACTS):       (Action.REPEAT,     State.REPEATED),
    (State.REPEATED,  Event.UNCHANGED):         (Action.HOLD,       State.HELD),
    (State.REPEATED,  Event.CHANGED):           (Action.RESPOND,    State.DONE),
    (State.REPEATED,  Event.TIMER):             (Action.GIVE_UP,    State.DONE),
    (State.LATE,      Event.ASSIGNMENT_NOTICE): (Action.SEND_NOW,   State.LATE),
    (State.LATE,      Event.OTHER_REQUEST):     (Action.SEND_NOW,   State.LATE),
    (State.LATE,      Event.ANSWER):            (Action.STORE,      State.STORED),
    (State.LATE,      Event.TAKEN_OVER):        (Action.NOTHING,    State.SENT),
    (State.STORED,    Event.TAKEN_OVER):        (Action.CLASSIFY,   State.SENT),

    (State.HELD,      Event.REBALANCE_NOTICE):  (Action.REPLACE,    State.DONE),
    (State.HELD,      Event.ASSIGNMENT_NOTICE): (Action.ASK,        State.ASKING),
    (State.HELD,      Event.OTHER_REQUEST):     (Action.RELEASE,    State.DONE),
    (State.HELD,      Event.TIMER):             (Action.RELEASE,    State.DONE),
    (State.ASKING,    Event.ASSIGNMENT_NOTICE): (Action.NOTHING,    State.ASKING),
    (State.ASKING,    Event.OTHER_REQUEST):     (Action.AWAIT_LAST, State.LAST_WAIT),
    (State.ASKING,    Event.TIMER):             (Action.AWAIT_LAST, State.LAST_WAIT),
    (State.ASKING,    Event.ANSWER):            (Action.COMPARE,    State.ASKING),
    (State.ASKING,    Event.UNCHANGED):         (Action.NOTHING,    State.HELD),
    (State.ASKING,    Event.CHANGED):           (Action.RELEASE,    State.DONE),
    (State.ASKING,    Event.FAILED):            (Action.FAIL,       State.DONE),
    (State.LAST_WAIT, Event.ASSIGNMENT_NOTICE): (Action.NOTHING,    State.LAST_WAIT),
    (State.LAST_WAIT, Event.OTHER_REQUEST):     (Action.NOTHING,    State.LAST_WAIT),
    (State.LAST_WAIT, Event.TIMER):             (Action.FAIL,       State.DONE),
    (State.LAST_WAIT, Event.ANSWER):            (Action.COMPARE,    State.LAST_WAIT),
    (State.LAST_WAIT, Event.UNCHANGED):         (Action.RELEASE,    State.DONE),
    (State.LAST_WAIT, Event.CHANGED):           (Action.RELEASE,    State.DONE),
    (State.LAST_WAIT, Event.FAILED):            (Action.FAIL,       State.DONE),

    (State.DONE,      Event.UNBLOCKED):         (Action.NOTHING,    State.DONE),
    (State.DONE,      Event.ANSWER):            (Action.NOTHING,    State.DONE),
    **{(state, Event.CLOSED):                   (Action.FORGET,     State.DONE) for state in State},
}  # fmt: skip
