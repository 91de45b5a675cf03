"""The brokers' access control lists, requested regularly with the gateway's own rights.

The lists are valid for `AGE_MAX_S`. A right that is revoked at the brokers ends here within `REFRESH_S` plus the time
of a request, and within `AGE_MAX_S` if no broker answers. Without valid lists, every request is denied.
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
"""The maximum age of the lists for a decision."""

RESOURCES = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP)

NOTHING_IS_ALLOWED = AccessLists(())


class EverythingIsAllowed(AccessLists):
    """The lists of brokers without an authorizer, which allow every request."""

    def __init__(self) -> None:
        super().__init__(())

    def allow(self, client: Client, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return True: every client may do it."""
        return True

    def allow_some(self, client: Client, operation: AclOperation, resource: ResourceType) -> bool:
        """Return True: every client may do it."""
        return True


class BrokerAcls:
    """The lists as of the last response of the brokers.

    Args:
        settings: The settings with the gateway's own access to the brokers.
    """

    def __init__(self, settings: Settings) -> None:
        self._admin = admin(settings, "coordinator-gateway-acls")
        self._lists: AccessLists = NOTHING_IS_ALLOWED
        self._asked_s = float("-inf")
        self._trouble = ""

    def current(self) -> AccessLists:
        """Return the lists; lists that allow nothing if the last ones are too old."""
        return self._lists if time.monotonic() - self._asked_s <= AGE_MAX_S else NOTHING_IS_ALLOWED

    async def keep(self) -> None:
        """Request the lists at regular intervals."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self.refresh()

    async def refresh(self) -> None:
        """Request the lists once. If the brokers do not return them, the old lists remain until they are too old."""
        asked_s = time.monotonic()
        try:
            self._take(AccessLists(await asyncio.to_thread(self._ask)), asked_s)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.SECURITY_DISABLED:
                self._take(EverythingIsAllowed(), asked_s)
            else:
                self._note(f"the brokers do not return their access control lists: {error.args[0].str()}")

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
