"""Requests to every shard: about its groups, and about the access rules and policies that each shard keeps."""

from msgspec import structs

from coordinator.base.errors import ErrorCode
from coordinator.messages.requests import ListGroups, Request
from coordinator.messages.responses import AnyAnswer, ListedGroup, ListGroupsAnswer
from streaming.client.transport import COMMAND_WAIT_S, Transport
from streaming.config.settings import Settings
from streaming.errors import RequestRefused


def ask_every_shard(settings: Settings, request: Request, about: str) -> list[AnyAnswer]:
    """Send a request to every shard, and return the responses in the order of the shards.

    Args:
        about: What the request sets or shows, for the text of an error.

    Raises:
        RequestRefused: A shard has refused the request.
        UserError: Not all shards have answered.
    """
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at) as transport:
        answers = transport.ask_every_shard(request, COMMAND_WAIT_S)
    if refused := next((answer for answer in answers if answer.code), None):
        raise refusal(settings, refused, about)
    return answers


def refusal(settings: Settings, answer: AnyAnswer, about: str) -> RequestRefused:
    """Return the error for a refused request about data or about the coordinator as a whole."""
    said = f": {answer.error_message}" if isinstance(answer.error_message, str) else ""
    who = settings.asking_as(settings.sasl_username)
    if answer.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED.number:
        return RequestRefused(
            f"The coordinator does not allow {who} to show or set {about}{said}. Sign with its access_key_file,"
            f" and add {who} to its super_users."
        )
    return RequestRefused(f"The coordinator did not accept the {about} ({answer.error}{said}).")


# -- the groups of all shards ------------------------------------------------------------------------------------------


def list_groups(transport: Transport, request: ListGroups, timeout_s: float = 10.0) -> ListGroupsAnswer:
    """Request the groups of every shard, and return them as one answer, sorted by group id, or the first error.

    Raises:
        NoAnswer, BrokerUnreachable: Not all shards have answered.
    """
    together = ListGroupsAnswer(request_id=None)
    groups: list[ListedGroup] = []
    for answer in transport.ask_every_shard(request, timeout_s):
        if not isinstance(answer, ListGroupsAnswer):
            return structs.replace(together, error=answer.error, code=answer.code, error_message=answer.error_message)
        groups += answer.groups
    return structs.replace(together, groups=tuple(sorted(groups, key=lambda group: group.group_id)))
