"""Who may do what: rules as Kafka's access control lists have them, and what they decide together.

What no rule allows is denied, and what one rule denies no other allows. A rule is for one principal or all of them, one
operation or all of them, and for resources by name, by the beginning of their names, or for all of a kind.

Source: Kafka's StandardAuthorizerData and AclEntry; KIP-11, KIP-290 (prefixed patterns).
"""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from coordinator import limits

ANONYMOUS = "User:ANONYMOUS"
"""Who says nothing about itself, as with Kafka."""

EVERYBODY, ANY = "User:*", "*"
UNKNOWN_HOST = ""
"""The host of a client that says none, or that nobody vouches for. No host's permission is its own; each host's denial
is, since it may be that host. Kafka has no such client: a broker sees every client's address."""

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of its kind."""

Time = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Operation(StrEnum):
    """What may be allowed or denied, as far as it decides anything here."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class Resource(StrEnum):
    """What it may be done to."""

    GROUP = "GROUP"
    TOPIC = "TOPIC"
    CLUSTER = "CLUSTER"


class Pattern(StrEnum):
    """How a rule names resources: by the whole name, where `*` is every one, or by its beginning."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Permission(StrEnum):
    """What a rule says."""

    ALLOW = "ALLOW"
    DENY = "DENY"


ALLOWED_WITH: dict[Operation, frozenset[Operation]] = {
    # who is allowed one of these                               may do this as well
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Denials imply nothing."""


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of an access control list.

    Args:
        principal: `User:NAME`; `User:*` is everybody, also who says nothing.
        name: Of the resource; the cluster's is `kafka-cluster`.
        host: The address that the client comes from; `*` is any.
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
    """All rules there are.

    Args:
        made_ms: When they were put together, Unix milliseconds: of two tables the later one counts.
    """

    made_ms: Time = 0
    rules: Rules = ()


class Table:
    """Rules made ready to be asked. What it has decided it remembers, which changes nothing: the rules stay the same.

    Args:
        super_users: Principals that may do everything.
    """

    def __init__(self, rules: Iterable[Rule], super_users: Collection[str] = ()) -> None:
        self._super_users = frozenset(super_users)
        self._named: dict[tuple[Pattern, Resource, str], list[Rule]] = {}
        for rule in rules:
            self._named.setdefault((rule.pattern, rule.resource, rule.name), []).append(rule)
        self._prefix_lengths = sorted({len(name) for pattern, _, name in self._named if pattern is Pattern.PREFIXED})
        self._decided: dict[tuple[str, str, Operation, Resource, str], bool] = {}

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        """Tell whether somebody may do something.

        Args:
            host: As Kafka prints it, `/127.0.0.1`; or `UNKNOWN_HOST`.
            operation: One, not `ALL`.
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

    def _decide(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:
        if principal in self._super_users:
            return True
        address = host.rpartition("/")[2]
        is_allowed = False
        for rule in self._about(resource, name):
            if rule.principal in (principal, EVERYBODY) and _is_from(rule, address) and _covers(rule, operation):
                if rule.permission is Permission.DENY:
                    return False
                is_allowed = True
        return is_allowed

    def _about(self, resource: Resource, name: str) -> Iterator[Rule]:
        keys = [(Pattern.LITERAL, resource, each) for each in (name, ANY)]
        keys += [(Pattern.PREFIXED, resource, name[:n]) for n in self._prefix_lengths if n <= len(name)]
        for key in keys:
            yield from self._named.get(key, ())


def _is_from(rule: Rule, address: str) -> bool:
    if address == UNKNOWN_HOST:
        return rule.host == ANY or rule.permission is Permission.DENY
    return rule.host in (address, ANY)


def _covers(rule: Rule, operation: Operation) -> bool:
    if rule.operation in (operation, Operation.ALL):
        return True
    return rule.permission is Permission.ALLOW and rule.operation in ALLOWED_WITH.get(operation, ())
