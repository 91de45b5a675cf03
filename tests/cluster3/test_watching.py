"""`coordinator up --brokers 3` starts a broker again that has ended by itself."""

import os
import queue
import signal

import pytest

from streaming.embedded import BrokerWatch, watching
from tests.cluster3.brokers import ThreeBrokers
from tests.system.waiting import HANG_S, wait_until

pytestmark = pytest.mark.long


def test_a_broker_of_three_that_was_killed_is_started_again(
    three: ThreeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "AGAIN_AFTER_S", 1.0)
    told, brokers = queue.Queue[str](), three.cluster.brokers
    pid, address = brokers[2].pid, brokers[2].bootstrap_servers
    with BrokerWatch(brokers.values(), told.put, none_is_left=lambda: told.put("none is left")):
        os.kill(pid, signal.SIGKILL)
        ended = told.get(timeout=HANG_S)
        assert ended.startswith(f"The broker at {address} has ended. It is started again in 1 s. Its log is ")
        assert told.get(timeout=HANG_S) == f"The broker at {address} runs again."
        assert brokers[2].pid != pid
        wait_until(three.is_whole)
    assert told.empty()
