"""Members of the consumer protocol and the coordinator together, with random faults."""

import pytest

from tests.streaming.client.consumer_protocol.schedules import ConsumerSchedule

SCHEDULES = 300
CHUNK = 50


def run(monkeypatch: pytest.MonkeyPatch, first: int, classics: float) -> None:
    for seed in range(first, first + CHUNK):
        try:
            ConsumerSchedule(monkeypatch, seed, classics).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_a_group_of_consumers_comes_to_rest_after_random_faults(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """9.1, 10.9: faults come first, then none; no partition ever has two owners, and listeners are called in order."""
    run(monkeypatch, first, classics=0.0)


@pytest.mark.parametrize("first", range(0, SCHEDULES, CHUNK))
def test_a_mixed_group_comes_to_rest_after_random_faults(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """8: a third of the members uses the classic protocol; the group changes its type with the first and the last."""
    run(monkeypatch, first, classics=0.33)
