"""The gateway decides by the brokers' access lists as the brokers do."""

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from streaming.gateway.security.acls import AccessLists, Client

ANA, BO = Client("User:CN=ana", "10.0.0.7"), Client("User:CN=bo", "10.0.0.8")
Op = AclOperation


def acl(text: str) -> AclBinding:
    """Parse `ALLOW ana READ LITERAL orders 10.0.0.7`. `*` means every principal, and no host means every host."""
    permission, user, operation, pattern, name, *host = text.split()
    principal = "User:*" if user == "*" else f"User:CN={user}"
    return AclBinding(
        ResourceType.TOPIC, name, ResourcePatternType[pattern], principal, host[0] if host else "*",
        AclOperation[operation], AclPermissionType[permission],
    )  # fmt: skip


def allowed(*acls: str, operation: Op = Op.READ, name: str = "orders", client: Client = ANA) -> bool:
    return AccessLists(map(acl, acls)).allow(client, operation, ResourceType.TOPIC, name)


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ((), False),
        (("ALLOW ana READ LITERAL orders",), True),
        (("ALLOW ana ALL LITERAL orders",), True),
        (("ALLOW bo READ LITERAL orders",), False),
        (("ALLOW * READ LITERAL orders",), True),
        (("ALLOW ana READ LITERAL *",), True),
        (("ALLOW ana READ LITERAL order",), False),
        (("ALLOW ana READ PREFIXED ord",), True),
        (("ALLOW ana READ PREFIXED orders",), True),
        (("ALLOW ana READ PREFIXED orders-",), False),
        (("ALLOW ana WRITE LITERAL orders",), False),
        (("ALLOW ana READ LITERAL orders 10.0.0.7",), True),
        (("ALLOW ana READ LITERAL orders 10.0.0.8",), False),
        (("ALLOW ana READ LITERAL orders", "DENY ana READ LITERAL orders"), False),
        (("ALLOW ana READ LITERAL orders", "DENY * ALL PREFIXED o"), False),
        (("ALLOW ana READ LITERAL orders", "DENY * READ LITERAL *"), False),
        (("ALLOW ana READ LITERAL orders", "DENY ana READ LITERAL orders 10.0.0.8"), True),
        (("ALLOW ana READ LITERAL orders", "DENY bo READ LITERAL orders"), True),
        (("ALLOW ana READ LITERAL orders", "DENY ana DESCRIBE LITERAL orders"), True),
    ],
)
def test_the_lists_decide_on_reading(acls: tuple[str, ...], expected: bool):
    assert allowed(*acls) is expected


@pytest.mark.parametrize("operation", [op for op in Op if op not in (Op.UNKNOWN, Op.ANY, Op.ALL)])
def test_operations_imply_others_as_in_kafka(operation: Op):
    brings_describe = {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER, Op.DESCRIBE}
    one = f"ALLOW ana {operation.name} LITERAL orders"
    assert allowed(one, operation=Op.DESCRIBE) is (operation in brings_describe)
    assert allowed(one, operation=Op.DESCRIBE_CONFIGS) is (operation in {Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS})
    denied = ("ALLOW ana ALL LITERAL orders", f"DENY ana {operation.name} LITERAL orders")
    assert allowed(*denied, operation=Op.DESCRIBE) is (operation is not Op.DESCRIBE), "denials imply nothing"


def test_a_denied_right_is_no_right_to_some_topic():
    some = AccessLists(
        [acl("ALLOW ana WRITE LITERAL a"), acl("ALLOW bo WRITE PREFIXED b"), acl("DENY ana ALL LITERAL a")]
    )
    assert not some.allow_some(ANA, Op.WRITE, ResourceType.TOPIC)
    assert some.allow_some(BO, Op.WRITE, ResourceType.TOPIC)
    assert not some.allow_some(BO, Op.READ, ResourceType.TOPIC)


def test_a_right_applies_to_one_kind_of_resource():
    lists = AccessLists([acl("ALLOW ana WRITE LITERAL *")])
    assert not lists.allow(ANA, Op.WRITE, ResourceType.TRANSACTIONAL_ID, "orders")
