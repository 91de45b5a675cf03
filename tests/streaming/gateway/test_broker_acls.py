"""The brokers' access control lists as their responses have them."""

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from kafka.errors import ClusterAuthorizationFailedError, SecurityDisabledError

from streaming.config.settings import Settings
from streaming.gateway.security import acls as module

TOPIC, BROKER, USER = 2, 4, 7
LITERAL, PREFIXED = 3, 4
READ, CREATE_TOKENS = 3, 13
DENY, ALLOW = 2, 3


def resource(kind: int, pattern: int, name: str, *acls: tuple[str, int, int]) -> Any:
    described = [
        SimpleNamespace(principal=principal, host="*", operation=operation, permission_type=permission)
        for principal, operation, permission in acls
    ]
    return SimpleNamespace(resource_type=kind, pattern_type=pattern, resource_name=name, acls=described)


class Answering:
    """Brokers that return one response."""

    members = (1,)

    def __init__(self, error_code: int, *resources: Any) -> None:
        self._response = SimpleNamespace(error_code=error_code, error_message=None, resources=resources)

    def ask(self, request: Any, within_s: float) -> Any:
        return self._response


def test_bindings_are_those_of_the_response_but_for_what_is_never_asked_about():
    found = module._ask(  # type: ignore[arg-type]
        Answering(
            0,
            resource(TOPIC, PREFIXED, "o", ("User:ana", READ, ALLOW), ("User:bo", READ, DENY)),
            resource(BROKER, LITERAL, "kafka-cluster", ("User:ana", CREATE_TOKENS, ALLOW)),
            resource(USER, LITERAL, "User:ana", ("User:ana", READ, ALLOW)),
        )
    )
    of_prefix = ResourceType.TOPIC, "o", ResourcePatternType.PREFIXED
    assert found == [
        AclBinding(*of_prefix, "User:ana", "*", AclOperation.READ, AclPermissionType.ALLOW),
        AclBinding(*of_prefix, "User:bo", "*", AclOperation.READ, AclPermissionType.DENY),
    ]


def test_lists_are_renewed_for_many_callers_once_in_a_while(monkeypatch: pytest.MonkeyPatch):
    """A caller gets lists that were requested after its call."""
    acls, asked_s = module.BrokerAcls(Settings()), list[float]()
    monkeypatch.setattr(module, "REST_S", 0.05)
    monkeypatch.setattr(module, "_ask", lambda brokers: asked_s.append(acls._tried_s) or [])

    async def renew_often() -> list[float]:
        await acls.refresh()
        called_s = []
        for _ in range(3):
            called_s.append(time.monotonic())
            await asyncio.gather(*(acls.renew() for _ in range(10)))
        return called_s

    called_s = asyncio.run(renew_often())
    acls.close()
    assert len(asked_s) == 4
    assert all(asked > called for asked, called in zip(asked_s[1:], called_s, strict=True))
    assert all(later - earlier > 0.04 for earlier, later in pairwise(asked_s))


@pytest.mark.parametrize("error", [SecurityDisabledError, ClusterAuthorizationFailedError])
def test_refusal_of_the_brokers_is_an_error(error: Any):
    with pytest.raises(error):
        module._ask(Answering(error.errno))  # type: ignore[arg-type]
