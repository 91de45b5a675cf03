"""The reading of a recording from the topics: the requests of a group's shard, and the group's events."""

from collections.abc import Callable

from coordinator.base.hashing import shard_of
from coordinator.messages.requests import DescribePolicies, Received, SetPolicies
from coordinator.messages.responses import DescribePoliciesAnswer
from streaming.client.transport import Transport
from streaming.config.settings import Settings
from streaming.errors import NotFound, RequestRefused, UserError
from streaming.kafka.reader import Progress, TopicReader
from streaming.trial.recording import Recording, part_of_group
from streaming.views.api.fold import TopicKind
from streaming.views.api.view_reader import ViewReader
from streaming.wire.records import decode_request

REQUESTS_MAX = 1_000_000
"""The number of requests of a group in one trial: about a gigabyte of memory, and a minute."""

ANSWER_WAIT_S = 5.0


def read(
    settings: Settings, group_id: str, since_ms: int, until_ms: int, tell: Callable[[int, int], None]
) -> Recording:
    """Read what the topics have of a group in a period.

    Args:
        tell: Called with the number of records read and the approximate total, first of the events, then of the
            requests.

    Raises:
        NotFound: The events do not contain the group.
        RequestRefused: The group has sent too many requests in this period.
        BrokerUnreachable, NoCoordinator: No broker answers, or the coordinator's topics do not exist.
    """
    topics: tuple[TopicKind, ...] = ("events",)
    with ViewReader(settings, groups=[group_id], topics=topics) as reading:
        views = reading.catch_up(tell)
    group = views.groups.get(group_id)
    if group is None or not group.events:
        raise NotFound(f"The events contain no group {group_id}.")
    requests = _requests(settings, group_id, since_ms, until_ms, Progress(tell))
    if not any(isinstance(each.request, SetPolicies) for each in requests):
        requests[:0] = _policies(settings, group_id, since_ms)
    events = [event for event in group.events if event.at_ms <= until_ms]
    return Recording(group_id, requests, events, settings.group_config(), until_ms)


def _requests(settings: Settings, group_id: str, since_ms: int, until_ms: int, progress: Progress) -> list[Received]:
    """Return the requests of a group in a period, and all policies of its shard up to the end of the period."""
    topic, key = settings.requests_topic, group_id.encode()
    requests: list[Received] = []
    with TopicReader(
        settings, [topic], "coordinator-policy", partitions=lambda number: {shard_of(group_id, number)}
    ) as reader:
        for record in reader.backlog(progress=progress):
            if record.timestamp > until_ms:
                break
            if record.key != key and record.key != b"":
                continue
            request = part_of_group(decode_request(record.value), group_id)
            if request is None or (record.timestamp < since_ms and not isinstance(request, SetPolicies)):
                continue
            requests.append(Received(record.offset, record.timestamp, request))
            if len(requests) > REQUESTS_MAX:
                raise RequestRefused(
                    f"{group_id} has sent more than {REQUESTS_MAX} requests in this time. Choose a shorter one with"
                    " --since and --until."
                )
    return requests


def _policies(settings: Settings, group_id: str, since_ms: int) -> list[Received]:
    """Return the policies that were set before the log begins, if the coordinator is available and has some."""
    asked = DescribePolicies(request_id="", reply_to="", client_id="coordinator-policy")
    try:
        with Transport(settings.kafka_client_arguments(), settings.topic_prefix, settings.signer_at) as transport:
            answers = transport.ask_every_shard(asked, ANSWER_WAIT_S)
    except UserError:
        return []
    answer = answers[shard_of(group_id, len(answers))]
    if not isinstance(answer, DescribePoliciesAnswer) or answer.code or not 0 < answer.made_ms <= since_ms:
        return []
    kept = SetPolicies(request_id="", reply_to="", made_ms=answer.made_ms, policies=answer.policies)
    return [Received(-1, answer.made_ms, kept)]
