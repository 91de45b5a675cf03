"""The serving part of one connection, without a socket and without a coordinator."""

import time
from collections.abc import Callable
from typing import Any

from coordinator.messages.responses import AssignmentNotice, RebalanceNotice
from streaming.gateway.connection.flow_control import InFlightRequest
from streaming.gateway.connection.tasks import Work
from streaming.gateway.members.heartbeat_scheduler import HeartbeatScheduler
from streaming.gateway.members.mailbox import Mailbox
from streaming.gateway.members.members import Members
from streaming.gateway.security.authenticate import Identity
from streaming.gateway.server.client_transactions import ClientTransactions
from streaming.gateway.server.serving import ListenerMetadata, Serving
from tests.streaming.gateway.parts import FakeCoordinators, FakeShared, FlowBench
from tests.streaming.gateway.wiring import frame_of


class ServingBench(FlowBench):
    """The serving part of one connection, in a running loop.

    Args:
        clock: Returns monotonic seconds, for the heartbeats.
        settings: Settings that replace those of `FakeShared`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, **settings: Any) -> None:
        super().__init__()
        self.shared = FakeShared(self.metrics)
        vars(self.shared.settings).update(settings)
        self.asking: FakeCoordinators = self.shared.coordinators
        self.identity = Identity((), "/10.0.0.7", "User:CN=ana")
        self.identity.client_id = "ana"
        hold = self.flow.send_buffer.hold
        self.questions = Mailbox(self.shared.coordinators, self.identity, self.flow.questions, self._tell, hold)
        view = ListenerMetadata(self.shared, 1, self.identity)
        self.work = Work(self.flow)
        self.members = Members(self.shared, self.work, self.questions, view.may_see)
        self.heartbeats = HeartbeatScheduler(
            self.shared, self.flow, self.work, self.questions, self.members, clock=clock
        )
        self.has_left = False
        self.transactions = ClientTransactions(self.shared, self.questions, self.identity, view, lambda: self.has_left)
        self._serving = Serving(
            self.shared, self.flow, self.work, self.questions, view, self.heartbeats, self.members, self.transactions
        )

    def ask(self, message: Any) -> InFlightRequest:
        slot = self.slot(message.API_KEY, message.version)
        self._serving.serve(slot, frame_of(message, message.version))
        self.flow.bound()
        return slot

    def read_response(self, kind: Any, version: int) -> Any:
        """Return the only response that was sent."""
        self.run_soon()
        (frame,) = self.transport.frames()
        return kind.decode(frame, version=version, header=True)

    def close(self) -> None:
        """Close the connection, as its socket does."""
        self.questions.close()
        self.heartbeats.close()
        self.members.close()

    def _tell(self, notice: AssignmentNotice | RebalanceNotice) -> None:
        self.heartbeats.handle_notice(notice)
