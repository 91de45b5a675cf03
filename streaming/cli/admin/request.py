"""One request, built from the arguments of a command line, and its unchanged response."""

import json
import sys
from typing import Any

import msgspec

from coordinator.messages.requests import ListGroups, Unreadable, Wake
from coordinator.messages.responses import AnyAnswer
from streaming.administration.shards import list_groups
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import UserError
from streaming.wire.records import decode_request

DEFAULTS: dict[str, dict[str, Any]] = {
    "join_group": {
        "session_timeout_ms": 45_000,
        "rebalance_timeout_ms": 300_000,
        "protocol_type": "by-hand",
        "protocols": [{"name": "by-hand"}],
    },
}
"""Default values of fields that a kind requires and a user may omit."""


class NotARequest(UserError):
    """The arguments of the command line are not a request."""


def ask(settings: Settings, what: str, fields: list[str], group: str | None, timeout_s: float) -> dict[str, Any]:
    """Send one request, and return its response.

    Raises:
        NotARequest: A field is wrong; the text names the field.
        UserError: No response came in time, or no broker answers.
    """
    request = decode_request(json.dumps(put_together(what, fields, group)).encode())
    if isinstance(request, Unreadable):
        raise NotARequest(f"{request.why}; `coordinator schema requests` shows every field.")
    if isinstance(request, Wake):
        raise NotARequest("A wake record has no response; `coordinator schema requests` shows all requests.")
    with Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at) as transport:
        if isinstance(request, ListGroups):
            answer: AnyAnswer = list_groups(transport, request, timeout_s)
        else:
            answer = transport.ask(request, timeout_s, follows=False)
        return dict(msgspec.to_builtins(answer))


def put_together(what: str, fields: list[str], group: str | None) -> dict[str, Any]:
    """Build a request's fields from a kind or a JSON object, and from NAME=VALUE arguments, which override the
    object."""
    text = sys.stdin.read() if what == "-" else what
    if text.lstrip().startswith("{"):
        try:
            wanted = json.loads(text)
        except json.JSONDecodeError as error:
            raise NotARequest(f"The request is not JSON: {error}.") from None
    else:
        wanted = {"kind": text.strip()}
    asker = {"request_id": "", "reply_to": "", "client_id": "by-hand"}  # the transport sets the first two
    wanted = {**asker, **DEFAULTS.get(wanted.get("kind", ""), {}), **wanted}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals:
            raise NotARequest(f"{field!r} is not NAME=VALUE.")
        wanted[name] = _value(value)
    if group is not None:
        wanted["group_id"] = group
    return wanted


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
