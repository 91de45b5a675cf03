"""The coordinator's topics and those of the observer: missing ones, their partitions, settings and risks."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from kafka.errors import NoError, for_code

from streaming.doctor.case import OF_CHECKPOINT, Case, Finding, Wanted, ok, warning, wrong
from streaming.kafka.any_broker import UNKNOWN_TOPIC, values_of
from streaming.kafka.brokers import listed
from streaming.kafka.topics import ALTERED, DURABLE, differences, risks_of

_GRANT = "Grant Describe and DescribeConfigs on the topics to this user: `coordinator acls` prints the commands."
_SETTINGS_FIRST = (
    "Give this command the settings of the coordinator (see docs/settings.md; `coordinator up` creates topics of 4"
    " partitions). Alter a topic only if they are given, and while no coordinator runs."
)


def check(case: Case) -> Iterator[Finding]:
    """Yield what is wrong with each topic. Topics that the settings do not need are checked if they exist."""
    if not case.brokers.answering:
        yield warning("The topics were not looked at, because no broker answers.", "Mend the brokers first.")
        return
    described = case.described
    codes = [(each, described[each.topic.name].error_code) for each in case.wanted]
    yield from _missing([each for each, code in codes if code == UNKNOWN_TOPIC], case)
    # a topic that is not shown may not exist
    found = [each for each, code in codes if not code or (each.is_needed and code != UNKNOWN_TOPIC)]
    if not found:
        return
    with case.any_broker() as brokers:
        configs = brokers.describe_configs([each.topic.name for each in found], known_within_s=0)
    for each in found:
        yield _judged(each, described[each.topic.name], configs[each.topic.name])
    yield from _risks([each for each in found if each.is_needed], described, configs)


def _missing(missing: Collection[Wanted], case: Case) -> Iterator[Finding]:
    """Yield the topics that the settings need and that do not exist."""
    absent = {each.role: each.topic.name for each in missing if each.is_needed}
    names = listed(list(absent.values())) if absent else ""
    if len(absent) == sum(each.is_needed for each in case.wanted):
        yield warning(
            f"There is no coordinator with the prefix {case.settings.topic_prefix}: none of its topics exists.",
            "The first start creates them. For one that has run, correct topic_prefix or bootstrap_servers.",
        )
    elif absent.keys() & OF_CHECKPOINT:
        yield wrong(f"Missing: {names}.", f"A checkpoint belongs to its topics: see {ALTERED}.")
    elif absent:
        yield warning(f"Missing: {names}.", "The next start creates what is missing.")


def _judged(wanted: Wanted, topic: Any, config: Any) -> Finding:
    """Return a finding about a topic that exists."""
    name = wanted.topic.name
    for error in map(for_code, (topic.error_code, config.error_code)):
        if error is not NoError:
            return warning(f"The brokers do not show {name} ({error.__name__}).", _GRANT)
    if faults := list(differences(wanted.role, wanted.topic, len(topic.partitions), values_of(config))):
        return wrong(
            f"{'; '.join(faults)}.",
            _SETTINGS_FIRST,
        )
    return ok(f"{name} is as needed: partitions {len(topic.partitions)}, copies {_copies(topic)}.")


def _risks(found: Iterable[Wanted], described: Mapping[str, Any], configs: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the settings with which the brokers may lose acknowledged records."""
    durable = [each.topic.name for each in found if each.role in DURABLE]
    values = {name: values_of(configs[name]) for name in durable}
    copies = {
        name: min((len(each.replica_nodes) for each in described[name].partitions), default=0) for name in durable
    }
    for sentence in risks_of(values, copies):
        text, _, remedy = sentence.partition(": ")
        yield warning(f"{text}.", f"{remedy[:1].upper()}{remedy[1:]}")


def _copies(topic: Any) -> int:
    """Return the number of copies of each partition, or the smallest one."""
    return min((len(each.replica_nodes) for each in topic.partitions), default=0)
