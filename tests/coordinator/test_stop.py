"""A request to stop the coordinator: a shard checks the right, says where the request is, and changes nothing."""

from coordinator.messages.events import AccessDenied
from coordinator.messages.requests import Received, StopCoordinator, Wake
from coordinator.messages.responses import Reply, StopCoordinatorAnswer
from coordinator.shard.shard import Shard
from streaming.wire.records import decode_request, encode_request
from tests.coordinator.scenario import SECRET
from tests.coordinator.test_authorizer import CONFIG, ROOT

NOW_MS = 1_000_000
ASKED = {"request_id": "1", "reply_to": "inbox", "client_host": "/a", "log_end_offset": 5}


def test_stop_needs_the_right_to_alter_the_cluster():
    shard = Shard(3, 4, SECRET, CONFIG)
    requests = [StopCoordinator(**ASKED, principal="User:ana"), StopCoordinator(**ASKED, principal=ROOT)]
    outputs = shard.step([Received(n, NOW_MS, request) for n, request in enumerate(requests, 7)], NOW_MS)
    answers = [output.answer for output in outputs if isinstance(output, Reply)]
    assert [
        (each.error, each.partition, each.offset) for each in answers if isinstance(each, StopCoordinatorAnswer)
    ] == [
        ("CLUSTER_AUTHORIZATION_FAILED", -1, -1),
        ("NONE", 3, 8),
    ]
    assert [(o.request, o.operation) for o in outputs if isinstance(o, AccessDenied)] == [("stop_coordinator", "ALTER")]


def test_stop_without_a_signature_is_refused_where_rules_are_in_use():
    shard = Shard(0, 4, SECRET, CONFIG)
    (reply, *_) = [
        output
        for output in shard.step([Received(0, NOW_MS, StopCoordinator(**ASKED, principal=ROOT), "unsigned")], NOW_MS)
        if isinstance(output, Reply)
    ]
    assert reply.answer.error == "CLUSTER_AUTHORIZATION_FAILED"


def test_record_about_the_end_is_no_request():
    assert decode_request(encode_request(Wake(stopped=17))) == Wake(stopped=17)
    assert Shard(0, 4, SECRET, CONFIG).step([Received(0, NOW_MS, Wake(stopped=17))], NOW_MS) == []
