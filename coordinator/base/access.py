"""Access rules in the form of Kafka's access control lists, and the decisions that follow from them.

The decisions hold for the coordinator's own rules, and for the lists of Kafka's brokers.

An operation that no rule allows is denied. A rule that denies an operation outweighs every rule that allows it. A rule
applies to one principal or to all principals, and to one operation or to all operations. It names resources by the
whole name, by the beginning of the name, or all resources of a type.

Source: Kafka's StandardAuthorizerData and AclEntry; KIP-11, KIP-290 (prefixed patterns).
"""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from coordinator.base import limits

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that is not authenticated, as in Kafka."""

EVERYBODY, ANY = "User:*", "*"
UNKNOWN_HOST = ""
"""The host of a client whose host is missing or not verified. A rule that allows one host does not apply to it. A rule
that denies one host does apply to it, because the client may run on that host. Kafka has no such client: a broker sees
the address of every client."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""

Time = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Operation(StrEnum):
    """Kafka's operations that matter to this coordinator."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class Resource(StrEnum):
    """The types of resources that a rule can name."""

    GROUP = "GROUP"
    TOPIC = "TOPIC"
    CLUSTER = "CLUSTER"


class Pattern(StrEnum):
    """The form of a rule's name: the whole name of a resource (`*` is every name), or the beginning of names."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Permission(StrEnum):
    """The effect of a rule: it allows or denies."""

    ALLOW = "ALLOW"
    DENY = "DENY"


ALLOWED_WITH: dict[str, frozenset[str]] = {
    # implied operation             is allowed with any of these
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""The operations that imply another one. Rules that deny imply no other operation."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry of an access control list.

    Args:
        principal: `User:NAME`; `User:*` is every principal, `User:ANONYMOUS` included.
        name: The name of the resource; the name of the cluster is `kafka-cluster`.
        host: The address that the client connects from; `*` is any address.
    """

    principal: Annotated[str, Meta(pattern="^[^:]+:.", max_length=limits.ID_CHARS_MAX)]
    operation: Operation
    resource: Resource
    name: Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
    pattern: Pattern = Pattern.LITERAL
    permission: Permission = Permission.ALLOW
    host: Annotated[str, Meta(min_length=1, max_length=limits.HOST_CHARS_MAX)] = ANY


Rules = Annotated[tuple[Rule, ...], Meta(max_length=limits.RULES_MAX)]


class Access(Struct, frozen=True):
    """All access rules.

    Args:
        made_ms: When the rules were made, Unix milliseconds. The later one of two sets of rules applies.
    """

    made_ms: Time = 0
    rules: Rules = ()


class Entry(Protocol):
    """An entry of an access control list in Kafka's names: a `Rule`, or one of the brokers."""

    @property
    def principal(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def resource(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def pattern(self) -> str: ...
    @property
    def permission(self) -> str: ...
    @property
    def host(self) -> str: ...


class Table:
    """Access rules, indexed for lookups. Decisions are cached; the cache is valid because the rules never change.

    Args:
        super_users: Principals that every operation is allowed to.
    """

    def __init__(self, rules: Iterable[Entry], super_users: Collection[str] = ()) -> None:
        self._super_users = frozenset(super_users)
        self._named: dict[tuple[str, str, str], list[Entry]] = {}
        for rule in rules:
            self._named.setdefault((rule.pattern, rule.resource, rule.name), []).append(rule)
        self._prefix_lengths = sorted({len(name) for pattern, _, name in self._named if pattern == Pattern.PREFIXED})
        self._decided: dict[tuple[str, str, str, str, str], bool] = {}

    def allows(self, principal: str, host: str, operation: str, resource: str, name: str) -> bool:
        """Return whether the rules allow an operation on a resource to a principal.

        Args:
            host: An address, also in Kafka's form, `/127.0.0.1`; or `UNKNOWN_HOST`.
            operation: One operation, not `ALL`.
        """
        question = principal, host, operation, resource, name
        decided = self._decided.get(question)
        if decided is None:
            decided = self._decide(*question)
            if len(name) <= limits.NAME_CHARS_MAX:
                if len(self._decided) >= limits.DECISIONS_MAX:
                    self._decided.clear()
                self._decided[question] = decided
        return decided

    def names(self, resource: str) -> set[str]:
        """Return the names in the rules about a type of resource."""
        return {name for _, kind, name in self._named if kind == resource}

    def _decide(self, principal: str, host: str, operation: str, resource: str, name: str) -> bool:
        if principal in self._super_users:
            return True
        address = host.rpartition("/")[2]
        is_allowed = False
        for rule in self._about(resource, name):
            if rule.principal in (principal, EVERYBODY) and _is_from(rule, address) and _covers(rule, operation):
                if rule.permission == Permission.DENY:
                    return False
                is_allowed = True
        return is_allowed

    def _about(self, resource: str, name: str) -> Iterator[Entry]:
        keys: list[tuple[str, str, str]] = [(Pattern.LITERAL, resource, each) for each in (name, ANY)]
        keys += [(Pattern.PREFIXED, resource, name[:n]) for n in self._prefix_lengths if n <= len(name)]
        for key in keys:
            yield from self._named.get(key, ())


def _is_from(rule: Entry, address: str) -> bool:
    if address == UNKNOWN_HOST:
        return rule.host == ANY or rule.permission == Permission.DENY
    return rule.host in (address, ANY)


def _covers(rule: Entry, operation: str) -> bool:
    if rule.operation in (operation, Operation.ALL):
        return True
    return rule.permission == Permission.ALLOW and rule.operation in ALLOWED_WITH.get(operation, ())
