"""A member of the consumer protocol between the transport's thread and its owner's thread."""

from coordinator.member.consumer_config import ConsumerProtocolConfig, Target, Wanted
from coordinator.member.consumer_member import ConsumerProtocolMember
from coordinator.member.consumer_states import State
from coordinator.member.effects import Failed
from streaming.client.driver import MemberDriver
from streaming.client.transport import PATIENCE_MS, Transport


class ConsumerProtocolDriver(MemberDriver[ConsumerProtocolMember]):
    """A member that uses the consumer protocol.

    Args:
        config: The member's identity; its `reply_to` and `client_host` are those of the transport.
    """

    def __init__(self, transport: Transport, config: ConsumerProtocolConfig) -> None:
        super().__init__(
            transport,
            lambda prefix, now_ms: ConsumerProtocolMember(config, prefix, now_ms),
            PATIENCE_MS,  # the coordinator has the session timeout: 45 s by default
        )

    @property
    def is_in_group(self) -> bool:
        """True from the first request to join until the membership ends."""
        return self.member.is_in_group

    @property
    def is_settled(self) -> bool:
        """True while the member is STABLE."""
        return self.member.state is State.STABLE

    @property
    def is_rejoining(self) -> bool:
        """False: members of this protocol are reconciled and do not join again while they are settled."""
        return False

    @property
    def may_commit(self) -> bool:
        """True while the member has an epoch."""
        return self.member.generation_id >= 0

    @property
    def target(self) -> Target | None:
        """The latest assignment; None before the first one of a membership."""
        return self.member.target

    @property
    def failed(self) -> Failed | None:
        """The error with which the coordinator refuses the member for good; None without one."""
        return self.member.failed

    def follow(self, wanted: Wanted) -> None:
        """Set the subscription and the facts about its topics."""
        self._do(lambda now_ms: self.member.follow(wanted, now_ms))

    def reconciled(self, target: Target) -> None:
        """Acknowledge an assignment: its partitions, and no others, are owned now."""
        self._do(lambda now_ms: self.member.reconciled(target, now_ms))

    def released(self) -> None:
        """Join again after `Lost`: no partition is owned any more."""
        self._do(lambda now_ms: self.member.released(now_ms))
