"""Outages of the checkpoint's store. The answers of the store and the time are given."""

import threading

import pytest

from streaming.config.settings import Settings
from streaming.errors import Exit, StoreUnavailable, UserError
from streaming.query.watchers.store_watch import ANSWER_WAIT_S, Silence, StoreWatch

WAIT_S = 60.0
AWAY, UNANSWERED = StoreUnavailable("It is away."), StoreUnavailable("It says nothing.")


class Store:
    """A store with a clock and a number of ended batches. It has answered once."""

    def __init__(self) -> None:
        self.now_s, self.batches = 1_000.0, 7
        self.silence = Silence(WAIT_S, UNANSWERED, lambda: self.batches, lambda: self.now_s)
        self.answers()

    def answers(self, why: StoreUnavailable | None = None, *, after_s: float = 0.0, is_batch_waiting: bool = True):
        self.silence.asks()
        self.now_s += after_s
        self.silence.hears(why, is_batch_waiting=is_batch_waiting)


@pytest.fixture
def store() -> Store:
    return Store()


def test_outage_lasts_until_a_batch_has_ended(store: Store) -> None:
    assert store.silence.outage is None
    store.answers(AWAY)
    assert store.silence.outage is AWAY
    assert not store.silence.is_answering
    store.answers()
    assert store.silence.is_answering
    assert store.silence.outage is AWAY, "the batch may still wait for its next try"
    store.batches += 1
    assert store.silence.outage is None


def test_outage_that_no_batch_waits_for_ends_with_an_answer(store: Store) -> None:
    """Without requests no batch would ever end."""
    store.answers(AWAY)
    store.answers(is_batch_waiting=False)
    assert store.silence.outage is None


def test_question_without_an_answer_is_an_outage_from_its_beginning(store: Store) -> None:
    store.silence.asks()
    store.now_s += ANSWER_WAIT_S
    assert store.silence.outage is None
    store.now_s += 0.1
    assert store.silence.outage is UNANSWERED
    assert not store.silence.is_answering
    store.now_s += WAIT_S - ANSWER_WAIT_S - 0.2
    assert store.silence.refusal is None
    store.now_s += 0.1
    assert store.silence.refusal is UNANSWERED


def test_wait_for_a_store_that_does_not_answer_has_a_bound(store: Store) -> None:
    store.answers(AWAY)
    store.now_s += WAIT_S - 1
    store.answers(AWAY)
    assert store.silence.refusal is None
    store.now_s += 1
    assert store.silence.refusal is AWAY
    assert AWAY.exit_code == Exit.FAILED


def test_answer_begins_the_wait_anew_while_the_batch_goes_on(store: Store) -> None:
    store.answers(AWAY)
    store.now_s += WAIT_S - 1
    store.answers()
    store.now_s += WAIT_S - 1
    assert store.silence.refusal is None
    store.answers(AWAY)
    assert store.silence.refusal is None


def test_answer_proves_nothing_after_the_query_has_failed(store: Store) -> None:
    """What an executor cannot reach, the driver may reach: such a query must not begin again for ever."""
    store.silence.fails(AWAY)
    store.now_s += WAIT_S
    store.answers(is_batch_waiting=False)
    assert store.silence.outage is AWAY
    assert store.silence.refusal is AWAY
    store.batches += 1
    assert store.silence.refusal is None


def test_next_outage_has_the_whole_wait(store: Store) -> None:
    store.silence.fails(AWAY)
    store.now_s += WAIT_S - 1
    store.batches += 1
    store.silence.fails(AWAY)
    store.now_s += WAIT_S - 1
    assert store.silence.refusal is None


# -- the work of a start -----------------------------------------------------------------------------------------------


def watch(stopping: threading.Event) -> StoreWatch:
    """Return the watch of a store that always answers."""
    return StoreWatch(Settings(checkpoint_wait_ms=3_000), lambda: 0, stopping)


def no_refusal() -> UserError | None:
    return None


class Impatient(threading.Event):
    """An event whose waits take no time."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def test_work_is_run_again_while_the_store_does_not_answer_it() -> None:
    outcomes = [AWAY, AWAY, None]

    def work() -> str:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return "done"

    store = watch(Impatient())
    assert store.attempt(work, no_refusal) == "done"
    assert store.not_ready_reasons() == ["It is away."], "no batch has ended yet"


def test_work_ends_with_a_refusal() -> None:
    def work() -> str:
        raise AWAY

    refusals = [None, None, UserError("lost")]
    with pytest.raises(UserError, match="lost"):
        watch(Impatient()).attempt(work, lambda: refusals.pop(0))


def test_work_ends_with_a_stop() -> None:
    stopping = Impatient()

    def work() -> str:
        stopping.set()
        raise AWAY

    assert watch(stopping).attempt(work, no_refusal) is None


def test_only_a_failure_at_the_store_is_waited_for() -> None:
    store, other = watch(Impatient()), UserError("disk full")
    assert store.takes(other) is other
    assert not store.is_waited_for
    assert store.takes(AWAY) is None
    assert store.is_waited_for
    assert store.is_back()
