"""The `group_topics` requests of one member: the changes of topics in the brokers' metadata.

A group takes facts from a heartbeat only about topics for which it has none yet. So a member sends all its facts once
it has joined, and each change after that. A request that changes nothing has no effect on the group. The topics that a
pattern matches depend on the rights of the client, so they are sent only when they change.

Source: our own; Kafka's coordinator reads the cluster's metadata.
"""

from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.base.limits import NEVER_MS, SUBSCRIBED_NAMES_MAX
from coordinator.member.consumer_config import ConsumerProtocolConfig, Wanted
from coordinator.messages.consumer_requests import GroupTopics, ResolvedPattern

_RETRIED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.number,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.number,
    ErrorCode.NOT_COORDINATOR.number,
}


class TopicReports:
    """The `group_topics` requests of one member. One of them is under way at a time, and is sent until it is answered.

    Args:
        prefix: The beginning of each request id.
    """

    def __init__(self, config: ConsumerProtocolConfig, prefix: str) -> None:
        self._config, self._prefix, self._count = config, prefix, 0
        self._reported = Wanted()
        self._reporting: tuple[str, Wanted] | None = None
        self.due_ms = NEVER_MS
        """When to send the request again that has no response."""

    def subscribed(self, wanted: Wanted) -> None:
        """Note a heartbeat: a pattern that is new in it comes with the topics that it matches."""
        if self._reported.regex != wanted.regex or self._reported.matched is None:
            self._reported = structs.replace(self._reported, regex=wanted.regex, matched=wanted.matched)

    def make(self, wanted: Wanted, now_ms: int) -> GroupTopics | None:
        """Make the request with the changes; None if there are none, or a request is under way."""
        if self._reporting is not None and now_ms < self.due_ms:
            return None
        facts = tuple(fact for name, fact in wanted.facts.items() if self._reported.facts.get(name) != fact)
        is_resolved_anew = wanted.matched is not None and self._reported.matched != wanted.matched
        if not facts and not is_resolved_anew:
            self._reporting, self.due_ms = None, NEVER_MS
            return None
        self._count += 1
        request_id = f"{self._prefix}t{self._count}"
        self._reporting, self.due_ms = (request_id, wanted), now_ms + self._config.request_timeout_ms
        matched = (wanted.matched or ())[:SUBSCRIBED_NAMES_MAX]
        return GroupTopics(
            request_id=request_id,
            reply_to=self._config.reply_to,
            group_id=self._config.group_id,
            client_id=self._config.client_id,
            client_host=self._config.client_host,
            topics=facts[:SUBSCRIBED_NAMES_MAX],
            regexes=(ResolvedPattern(wanted.regex, matched, self._config.member_id),) if is_resolved_anew else (),
        )

    def end(self, request_id: str, code: int) -> bool:
        """Note the response to a request. Return False if it belongs to no request that is under way."""
        if self._reporting is None or self._reporting[0] != request_id:
            return False
        if code not in _RETRIED:
            self._reported = self._reporting[1]
            self._reporting, self.due_ms = None, NEVER_MS
        return True

    def forget(self) -> None:
        """End the membership: the next one sends all facts again."""
        self._reported, self._reporting, self.due_ms = Wanted(), None, NEVER_MS
