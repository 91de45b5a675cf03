"""The brokers: which answer, their versions and features, the active controller and its clock."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafka.errors import KafkaError, NoError, for_code
from kafka.protocol.admin import DescribeQuorumRequest
from kafka.protocol.broker_version_data import infer_broker_version_from_api_versions
from kafka.protocol.metadata import ApiVersionsRequest

from streaming.doctor.case import Case, Finding, ok, warning, wrong
from streaming.doctor.clocks import ShownTime, difference
from streaming.kafka.any_broker import AnyBroker, may_pass, metadata_request
from streaming.moments import unix_ms

FEATURES_SINCE = 3
"""The first version of ApiVersions whose response has features (KIP-584)."""

CLOCK_SINCE = 1
"""The first version of DescribeQuorum whose response has the leader's clock (KIP-836)."""

CLOCK_TRIES = 5
"""The requests for the clock. The one with the fastest response bounds it best."""

_NO_CLOCK = "No request without a record shows the clock of a broker that is not the active controller."


class _Leader(NamedTuple):
    """The leader of the controllers; its clock is None if the brokers do not show it."""

    node: int
    clock: ShownTime | None


def check(case: Case) -> Iterator[Finding]:
    """Yield the state of the brokers, of each one, and of their controller. All of it is read, and nothing written."""
    state = case.brokers
    # a missing topic has a line of its own
    if sentence := dataclasses.replace(state, missing=()).sentence:
        yield wrong(sentence)
    if not state.answering:
        return
    with case.any_broker() as brokers:
        metadata = brokers.ask(lambda: metadata_request(()))
        brokers.learn(metadata)
        addresses = {each.node_id: f"{each.host}:{each.port}" for each in metadata.brokers}
        yield from _each(brokers, {node: addresses.get(node, "-") for node in sorted(state.answering)})
        yield from _controller(brokers, case.settings.clock_slack_ms)


def _each(brokers: AnyBroker, addresses: Mapping[int, str]) -> Iterator[Finding]:
    """Yield the version of each broker, and the features of the cluster.

    Args:
        addresses: The addresses of the brokers, which clients have to reach.
    """
    request = ApiVersionsRequest(
        client_software_name="groupcoord", client_software_version="1", min_version=FEATURES_SINCE
    )
    answers = brokers.ask_each(lambda _: request, tuple(addresses))
    features: dict[str, int] = {}
    for node, address in addresses.items():
        answer: Any = answers[node]
        if isinstance(answer, Exception):
            yield warning(f"Broker {node} does not show its versions ({answer}).", "See the broker's log.")
            continue
        apis = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        version = ".".join(map(str, infer_broker_version_from_api_versions(apis)))
        yield ok(f"Broker {node} answers at {address}: Kafka {version} or newer, as its APIs show.")
        features |= {each.name: each.max_version_level for each in answer.finalized_features or ()}
    if features:
        yield ok(f"Features: {', '.join(f'{name}={level}' for name, level in sorted(features.items()))}.")


def _controller(brokers: AnyBroker, slack_ms: int) -> Iterator[Finding]:
    """Yield the active controller, and the difference of its clock."""
    try:
        answers = [_leader(brokers) for _ in range(CLOCK_TRIES)]
    except KafkaError as error:
        remedy = (
            "Look at the controllers' logs" if may_pass(error) else "Grant the right Describe on the cluster for it"
        )
        yield warning(
            f"The brokers do not show their active controller ({error}), so no clock of theirs can be compared.",
            f"{remedy}, and compare the clocks by NTP.",
        )
        return
    yield ok(f"The active controller is node {answers[0].node}.")
    if clocks := [each.clock for each in answers if each.clock is not None]:
        exact = min(clocks, key=lambda clock: clock.answered_ms - clock.asked_ms)
        found = difference("The clock of the active controller", exact, slack_ms)
        yield found._replace(text=f"{found.text} {_NO_CLOCK}")


def _leader(brokers: AnyBroker) -> _Leader:
    """Return the leader of the controllers.

    Raises:
        KafkaError: The brokers do not show it.
    """
    topic = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])],
        min_version=CLOCK_SINCE,
    )
    asked_ms = unix_ms()
    response = brokers.ask(lambda: request)
    answered_ms = unix_ms()
    _raise_error(response.error_code)
    quorum = response.topics[0].partitions[0]
    _raise_error(quorum.error_code)
    times = [each.last_caught_up_timestamp for each in quorum.current_voters if each.replica_id == quorum.leader_id]
    return _Leader(quorum.leader_id, next((ShownTime(asked_ms, answered_ms, at) for at in times if at > 0), None))


def _raise_error(error_code: int) -> None:
    """Raise the error of a response, if it has one."""
    error = for_code(error_code)
    if error is not NoError:
        raise error
