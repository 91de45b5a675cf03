"""The access rules for the coordinator, from a file or from the brokers' access control lists.

Each shard gets the whole table, and applies the latest table that it has received.
"""

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from coordinator.base.access import Access, Operation, Pattern, Permission, Resource, Rule, Rules
from coordinator.base.limits import NAME_CHARS_MAX, RULES_MAX
from coordinator.messages.requests import DescribeAccess, SetAccess
from coordinator.messages.responses import DescribeAccessAnswer
from streaming.administration.shards import ask_every_shard
from streaming.config.settings import Settings
from streaming.errors import Exit, UserError
from streaming.kafka.brokers import unreachable
from streaming.kafka.clients import admin
from streaming.moments import unix_ms

ACLS_WAIT_S = 30.0
"""The longest wait for the brokers' access control lists, which may be long."""

RESOURCES = {
    # librdkafka's         our resource
    ResourceType.GROUP:  Resource.GROUP,
    ResourceType.TOPIC:  Resource.TOPIC,
    ResourceType.BROKER: Resource.CLUSTER,
}  # fmt: skip


class BadRules(UserError):
    """The text contains no valid rules."""

    exit_code = Exit.NEEDS_A_PERSON


class RulesRefused(UserError):
    """The brokers refused to show their rules."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rules: Rules = ()


def rules_in(file: Path) -> tuple[Rule, ...]:
    """Read rules from a TOML file with a table `[[rules]]` for each.

    Raises:
        BadRules: A rule is wrong; the text names the rule and the error.
    """
    try:
        return msgspec.toml.decode(file.read_bytes(), type=_File).rules
    except OSError as error:
        raise BadRules(f"{file} cannot be read ({error.strerror}).") from None
    except msgspec.ValidationError as error:
        raise BadRules(f"{file} contains no valid rules: {_plainly(str(error))}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise BadRules(f"{file} is not TOML: {error}.") from None


def _plainly(why: str) -> str:
    what, _, where = why.partition(" - at `$")
    named = re.search(r"\[(\d+)\](?:\.(\w+))?", where)
    if named is None:
        return f"{what}{' in ' + where.strip('.`') if where else ''}"
    return f"{what} in {named[2] or 'the whole'} of rule {int(named[1]) + 1}"


def written(rules: Iterable[Rule]) -> str:
    """Return rules in the form that `rules_in` reads."""
    return "\n".join(
        "[[rules]]\n" + "".join(f"{k} = {json.dumps(v, ensure_ascii=False)}\n" for k, v in each_rule.items())
        for each_rule in map(msgspec.to_builtins, rules)
    )


# -- the brokers' ------------------------------------------------------------------------------------------------------


def rules_of_brokers(settings: Settings) -> tuple[Rule, ...]:
    """Return the brokers' own rules for groups, topics and the cluster whose operation the coordinator knows.

    Raises:
        BadRules: The brokers have too many rules.
        RulesRefused: The brokers have no authorizer, or refuse to list their rules.
        BrokerUnreachable: No broker answered.
    """
    asker = admin(settings, "coordinator-rules")
    try:
        found = [rule for each in RESOURCES for binding in _bindings(asker, each) for rule in _rule(binding)]
    except KafkaException as error:
        raise _refusal(settings, error.args[0]) from error
    if len(found) > RULES_MAX:
        raise BadRules(
            f"The brokers have {len(found)} rules about groups, topics and the cluster, and {RULES_MAX} can be set."
            f" Name resources by prefixes, or set your own table."
        )
    return tuple(sorted(found, key=repr))


def _bindings(asker: Any, resource: ResourceType) -> list[AclBinding]:
    anybody: Any = None
    every = AclBindingFilter(
        resource, anybody, ResourcePatternType.ANY, anybody, anybody, AclOperation.ANY, AclPermissionType.ANY
    )
    bindings: list[AclBinding] = asker.describe_acls(every, request_timeout=ACLS_WAIT_S).result()
    return bindings


def _rule(binding: Any) -> Iterator[Rule]:
    """Convert a binding to a rule. A binding with a longer name than any group or topic can have is skipped."""
    if binding.operation.name in Operation.__members__ and len(binding.name) <= NAME_CHARS_MAX:
        yield Rule(
            principal=binding.principal,
            operation=Operation[binding.operation.name],
            resource=RESOURCES[binding.restype],
            name=binding.name,
            pattern=Pattern[binding.resource_pattern_type.name],
            permission=Permission[binding.permission_type.name],
            host=binding.host,
        )


def _refusal(settings: Settings, error: KafkaError) -> UserError:
    match error.code():
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return RulesRefused("The brokers do not return their rules. Grant Describe on the cluster to this user.")
        case KafkaError.SECURITY_DISABLED:
            return RulesRefused("The brokers have no rules, because they have no authorizer. Set your own table.")
    return unreachable(settings, error.str())


# -- the coordinator's -------------------------------------------------------------------------------------------------


def set_rules(settings: Settings, rules: tuple[Rule, ...]) -> int:
    """Set these rules in every shard, and return the number of shards.

    Raises:
        RequestRefused: Not all shards have accepted the rules.
        UserError: Not all shards have answered.
    """
    now_ms = unix_ms()
    request = SetAccess(request_id="", reply_to="", client_id="coordinator-access", made_ms=now_ms, rules=rules)
    return len(ask_every_shard(settings, request, "rules"))


def shown_rules(settings: Settings) -> list[Access]:
    """Return the rules of every shard. They are equal, unless some shards have not received the latest rules yet.

    Raises:
        RequestRefused: The shards refuse to show them.
        UserError: Not all shards have answered.
    """
    request = DescribeAccess(request_id="", reply_to="", client_id="coordinator-access")
    answers = ask_every_shard(settings, request, "rules")
    return [Access(a.made_ms, a.rules) for a in answers if isinstance(a, DescribeAccessAnswer)]


def keep_in_step(
    settings: Settings, every_s: float, tell: Callable[[str], None], stopping: threading.Event | None = None
) -> None:
    """Set the brokers' rules, and set them again whenever they differ from the rules of a shard.

    Args:
        stopping: The event that makes this function return.

    Raises:
        UserError: The first attempt failed. Later failures are reported, and the attempt is repeated.
    """
    stopping = stopping or threading.Event()
    _follow(settings, tell)
    while not stopping.wait(every_s):
        try:
            _follow(settings, tell)
        except UserError as error:
            tell(f"{error} Trying again.")


def _follow(settings: Settings, tell: Callable[[str], None]) -> None:
    rules = rules_of_brokers(settings)
    if any(access.rules != rules or not access.made_ms for access in shown_rules(settings)):
        shards = set_rules(settings, rules)
        tell(f"{len(rules)} rules of the brokers are set in {shards} shards.")
