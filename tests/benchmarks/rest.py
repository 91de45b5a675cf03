"""The time from request to response, with one heartbeat at a time, of the coordinator and of a stateless Spark query.

The two queries run one after the other on one broker. Each is alone on the machine while it is measured. The time runs
from the client's `produce` to the arrival of the response. The pauses between requests are drawn at random, so that a
request can arrive at any time between two ticks of the coordinator. Both queries get the same pauses.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from coordinator.base.hashing import shard_of
from coordinator.messages.requests import Request
from coordinator.messages.responses import JoinGroupAnswer
from streaming.config.settings import Settings
from streaming.embedded import Broker
from streaming.embedded.child import Child
from streaming.wire.records import decode_answer, encode_request
from tests.benchmarks import bench
from tests.benchmarks.bench import BenchFailed, say
from tests.benchmarks.figures import Figures, percentile
from tests.benchmarks.members import Member
from tests.benchmarks.usage import Usage

WARM_UP = 120  # about a minute; a young JVM compiles for that long, on the same cores
IDLE_S = 10.0
OTHERS_PERCENT_MAX = 20  # this includes this client and the kernel
PAUSE_S = (0.05, 0.5)
REPLY_WAIT_S = 60.0
STRANGER = Member("orders-00001", 0, "nobody", 1)  # the stateless query has no members


def measure(options: argparse.Namespace) -> Figures:
    """Measure the coordinator, then the stateless query."""
    with bench.broker() as broker:
        rest, idle_percent = _measured(broker, "coordinator", options.samples)
        stateless, stateless_idle_percent = _measured(broker, "stateless", options.samples)
    return {
        "reply_rest_p50_ms": percentile(rest, 50),
        "reply_rest_p99_ms": percentile(rest, 99),
        "stateless_p50_ms": percentile(stateless, 50),
        "stateless_p99_ms": percentile(stateless, 99),
        "reply_rest_ratio": percentile(rest, 50) / percentile(stateless, 50),
        "reply_rest_samples": options.samples,
        "idle_cpu_percent": idle_percent,
        "stateless_idle_cpu_percent": stateless_idle_percent,
    }


class Client:
    """A client with one outstanding request at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer = Producer({"bootstrap.servers": settings.bootstrap_servers, "linger.ms": 0})
        unused_group = {"group.id": "rest", "enable.auto.commit": False}  # a consumer requires an id
        self._consumer = Consumer({"bootstrap.servers": settings.bootstrap_servers, **unused_group})
        partitions = range(settings.reply_partitions)
        self._consumer.assign([TopicPartition(settings.replies_topic, p, OFFSET_BEGINNING) for p in partitions])
        self._asked = 0

    def ask(self, request: Callable[[str], Request]) -> tuple[Message, float]:
        """Send a request and wait for the response with its id; return the response, and the milliseconds until it."""
        self._asked += 1
        request_id = f"{self._asked:012}"
        wanted = request(request_id)
        value, group_id = encode_request(wanted), wanted.group_id
        shard = shard_of(group_id, self._settings.request_partitions)
        started_s = time.perf_counter()
        self._producer.produce(self._settings.requests_topic, value, group_id, partition=shard)
        while time.perf_counter() < started_s + REPLY_WAIT_S:
            self._producer.poll(0)
            reply = self._consumer.poll(1.0)
            if reply is not None and request_id.encode() in (reply.value() or b""):
                return reply, 1000 * (time.perf_counter() - started_s)
        raise BenchFailed(f"no response to {request_id} within {REPLY_WAIT_S:.0f} s")

    def close(self) -> None:
        """Close the connections to the broker, which stops before this process does."""
        self._producer.flush(1.0)
        self._consumer.close()


def _measured(broker: Broker, which: str, samples: int) -> tuple[list[float], float]:
    """Run one of the two queries; return its sorted latencies in milliseconds, and its use of a core when idle."""
    with tempfile.TemporaryDirectory(prefix="bench-rest-", ignore_cleanup_errors=True) as name:
        folder, servers = Path(name), broker.bootstrap_servers
        settings = Settings.load(bootstrap_servers=servers, topic_prefix=which, checkpoint=f"{name}/checkpoint")
        say(f"Starting the {which} query.")
        with _running[which](settings, folder) as running, closing(Client(settings)) as client:
            say(f"Measuring the {which} query.")
            member = settled(client) if which == "coordinator" else STRANGER
            with Usage({which: running.pid, "broker": broker.pid}, weighed=which) as usage:
                usage.begin()
                latencies_ms = _latencies_ms(client, member, samples)
                usage.end()
                if (others_percent := usage.others_cpu_percent()) > OTHERS_PERCENT_MAX:
                    say(f"Disturbed: other programs used {others_percent:.0f} % of a core during the measurement.")
                usage.begin()
                time.sleep(IDLE_S)
                usage.end()
    return latencies_ms, usage.cpu_percent(which)


def _stateless(settings: Settings, folder: Path) -> AbstractContextManager[Child]:
    arguments = ("--bootstrap-servers", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix)
    return bench.child("tests.benchmarks.stateless", *arguments, "--checkpoint", settings.checkpoint, folder=folder)


_running = {"coordinator": bench.coordinator, "stateless": _stateless}


def settled(client: Client, group_id: str = "orders-00000") -> Member:
    """Make a group of one member, and return the member when it has its assignment."""
    member = Member(group_id, 0)
    answer = decode_answer(client.ask(member.join_group)[0].value() or b"")
    assert isinstance(answer, JoinGroupAnswer), f"the response to a join is {answer}"
    member.take(answer)
    client.ask(member.sync_group)
    return member


def _latencies_ms(client: Client, member: Member, samples: int) -> list[float]:
    """Send heartbeats one at a time, and return the sorted times until their responses."""
    pauses, latencies_ms = random.Random(1), []
    for _ in range(WARM_UP + samples):
        time.sleep(pauses.uniform(*PAUSE_S))
        latencies_ms.append(client.ask(member.heartbeat)[1])
    return sorted(latencies_ms[WARM_UP:])


if __name__ == "__main__":
    bench.main(measure)
