"""The time of `coordinator policy try` for a million requests of one group, once they are read from the topic.

The group has twenty members, which send heartbeats. A deploy replaces all of them, one by one, in each of twenty parts
of the time. The measured time is that of the decoding of the requests, the exact replay, the model under the recorded
policies, and the model under one other policy.
"""

import argparse
import time

from coordinator.base.policies import Policy, Succession
from coordinator.messages.requests import Received
from streaming.trial.recording import Recording
from streaming.trial.trials import run_trial
from streaming.wire.records import decode_request
from tests.benchmarks import bench
from tests.benchmarks.bench import say
from tests.benchmarks.figures import Figures
from tests.streaming.views.seated import S, SeatedTopics
from tests.streaming.views.test_views import folded, raws
from tests.streaming.views.written import CONFIG

REQUESTS, MEMBERS, DEPLOYS = 1_000_000, 20, 20


def measure(options: argparse.Namespace) -> Figures:
    """Play the group's life, and try a policy on it."""
    world = _played()
    say(f"Trying a policy on {len(world.requests)} requests.")
    began_s = time.process_time()
    requests = [Received(r.offset, r.timestamp, decode_request(r.value)) for r in world.requests]
    decoded_s = time.process_time() - began_s
    recording = Recording("g", requests, folded(raws(world)).groups["g"].events, CONFIG, world.now_ms)
    began_s = time.process_time()
    trial = run_trial(recording, 0, {"succession": (Policy(name="g", succession=Succession()),)})
    tried_s = time.process_time() - began_s
    return {
        "policy_try_s": decoded_s + tried_s,
        "policy_try_requests": trial.requests,
        "policy_try_rebalances_recorded": trial.recorded.total,
        "policy_try_rebalances_model": trial.model.total,
        "policy_try_rebalances_succession": trial.under["succession"].total,
    }


def _played() -> SeatedTopics:
    """Return a group whose members have sent so many requests."""
    say("Playing the life of a group.")
    world = SeatedTopics()
    world.start(*(f"c{number}" for number in range(MEMBERS)))
    for deploy in range(DEPLOYS):
        for name in list(world.members):
            world.stop(name)
            world.wait(3 * S)
            world.start(f"c{len(world.requests)}")
            world.wait(5 * S)
        while len(world.requests) < REQUESTS * (deploy + 1) // DEPLOYS:
            world.wait(200 * S)
    return world


if __name__ == "__main__":
    bench.main(measure)
