"""The brokers' access control lists, asked for again and again with the gateway's own rights.

They are believed for `AGE_MAX_S`: a right that is taken away at the brokers is gone here within `REFRESH_S` and what it
takes to ask, and within `AGE_MAX_S` though no broker answers. Where none has, nobody is allowed anything.
"""

import asyncio
import logging
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from streaming.config.settings import Settings
from streaming.gateway.rights import AccessLists, Client
from streaming.kafka.clients import REPEATED_ANSWER_WAIT_S, admin

log = logging.getLogger(__name__)

REFRESH_S = 5.0
AGE_MAX_S = 15.0
"""How old the lists may be that a request is compared with."""

RESOURCES = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP)

NOTHING_IS_ALLOWED = AccessLists(())


class EverythingIsAllowed(AccessLists):
    """The lists of brokers that have no authorizer: they let anybody do anything."""

    def __init__(self) -> None:
        super().__init__(())

    def allow(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return that a client may do it."""
        return True

    def allow_some(self, client: Client, operation: AclOperation, resource: ResourceType) -> bool:
        """Return that a client may do it."""
        return True


class BrokerAcls:
    """The lists as they were when the brokers were last asked.

    Args:
        settings: How the brokers are reached, as the gateway.
    """

    def __init__(self, settings: Settings) -> None:
        self._admin = admin(settings, "coordinator-gateway-acls")
        self._lists: AccessLists = NOTHING_IS_ALLOWED
        self._asked_s = float("-inf")
        self._trouble = ""

    def current(self) -> AccessLists:
        """Return the lists; such that allow nothing where they are too old to be believed."""
        return self._lists if time.monotonic() - self._asked_s <= AGE_MAX_S else NOTHING_IS_ALLOWED

    async def keep(self) -> None:
        """Ask for them again and again."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Ask for them once. What is known stays where the brokers do not tell, until it is too old."""
        asked_s = time.monotonic()
        try:
            self._take(AccessLists(await asyncio.to_thread(self._ask)), asked_s)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.SECURITY_DISABLED:
                self._take(EverythingIsAllowed(), asked_s)
            else:
                self._note(f"the brokers do not tell their access control lists: {error.args[0].str()}")

    def _take(self, lists: AccessLists, asked_s: float) -> None:
        self._lists, self._asked_s, self._trouble = lists, asked_s, ""

    def _note(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("%s. Grant Describe on the cluster to the gateway; until then it relays nothing.", trouble)

    def _ask(self) -> list[AclBinding]:
        anybody: Any = None
        asked = [
            self._admin.describe_acls(
                AclBindingFilter(
                    each, anybody, ResourcePatternType.ANY, anybody, anybody, AclOperation.ANY, AclPermissionType.ANY
                ),
                request_timeout=REPEATED_ANSWER_WAIT_S,
            )
            for each in RESOURCES
        ]
        return [binding for future in asked for binding in future.result()]
