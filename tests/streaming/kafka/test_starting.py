"""Tests of the start of kafka-python's clients: attempts within a time, and brokers in turn."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaConfigurationError, KafkaTimeoutError

from streaming.config.timeouts import ATTEMPT_WAIT_S, RETRY_WAIT_S
from streaming.kafka import starting as module
from streaming.kafka.starting import Attempt, started


class Cluster:
    """The part of kafka-python's metadata that has the brokers."""

    def bootstrap_brokers(self) -> list[Any]:
        """Return the brokers in no order, as kafka-python does."""
        return [SimpleNamespace(host=each, port=1) for each in "bca"]


class Starts:
    """Starts that end after the whole time of their attempts, on a clock of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.attempts: list[Attempt] = []
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.passes)
        monkeypatch.setattr(module, "time", clock)

    def passes(self, seconds: float) -> None:
        self.now_s += seconds

    def until(self, number: int, error: Exception) -> Callable[[Attempt], int]:
        """Return a start whose attempts fail up to the one with this number."""

        def start(attempt: Attempt) -> int:
            self.attempts.append(attempt)
            if len(self.attempts) == number:
                return number
            self.passes(attempt.timeout_ms / 1_000)
            raise error

        return start


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    return Starts(monkeypatch)


def test_an_attempt_follows_one_without_an_answer(starts: Starts) -> None:
    assert started(starts.until(3, KafkaTimeoutError()), 15) == 3
    first_ms, *later_ms = (each.timeout_ms for each in starts.attempts)
    left_ms = 15_000 - 3 * first_ms - 2_000 * RETRY_WAIT_S
    assert [first_ms, *later_ms] == pytest.approx([1_000 * ATTEMPT_WAIT_S, 2 * first_ms, left_ms])
    first = starts.attempts[0].number
    assert [each.number - first for each in starts.attempts] == [0, 1, 2]


def test_all_attempts_together_have_a_bound(starts: Starts) -> None:
    with pytest.raises(KafkaTimeoutError):
        started(starts.until(0, KafkaTimeoutError()), 7)
    assert starts.now_s == pytest.approx(7)


def test_a_wrong_setting_ends_the_start_at_once(starts: Starts) -> None:
    with pytest.raises(KafkaConfigurationError):
        started(starts.until(0, KafkaConfigurationError()), 15)
    assert len(starts.attempts) == 1


@pytest.mark.parametrize(("number", "order"), [(0, "abca"), (7, "bcab")])
def test_brokers_are_taken_in_turn(number: int, order: str) -> None:
    """Each attempt begins with the next one, also if it uses a client again."""
    cluster = Cluster()
    makes: Any = lambda **_: SimpleNamespace(cluster=cluster)  # noqa: E731
    for shift in (0, 1):
        config = Attempt(number + shift, 3_000).config({"client_id": "x", "kafka_client": makes})
        assert (config["client_id"], config["bootstrap_timeout_ms"]) == ("x", 3_000)
        made = config["kafka_client"]()
        taken = [broker.host for _ in order for broker in made.cluster.bootstrap_brokers()]
        assert "".join(taken) == (order[shift:] + order[1])[: len(order)]
