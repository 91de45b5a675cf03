"""The threads beside the query: a thread that fails begins again, since the query needs it and nobody watches it."""

import logging
from collections.abc import Callable
from threading import Event, Thread

log = logging.getLogger(__name__)

RETRY_WAIT_S = 1.0
"""The pause before failed work begins again."""

END_WAIT_S = 5.0
"""How long a stop waits for a thread. One that waits for silent brokers ends with the process."""


def run_forever(work: Callable[[], None], what: str, closing: Event) -> None:
    """Run work to its end. After any error it begins anew, until the thread is to stop.

    An error that is repeated is logged once.

    Args:
        what: The work, as the beginning of a sentence: "the alarm".
    """
    logged = ""
    while not closing.is_set():
        try:
            return work()
        except Exception as error:
            if str(error) != logged:
                logged = str(error)
                log.warning("%s failed, and begins again: %s", what, error)
                log.debug("the failure in full", exc_info=error)
            closing.wait(RETRY_WAIT_S)
    return None


def await_end(thread: Thread) -> None:
    """Wait for the end of a thread whose work is to stop, for `END_WAIT_S` at most."""
    if thread.is_alive():
        thread.join(END_WAIT_S)
