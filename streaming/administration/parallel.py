"""Work on many groups, several at a time, whose results come in the order of the groups."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def each_in_order(work: Callable[[Item], Result], items: Iterable[Item], limit: int) -> Iterator[Result]:
    """Yield the result of each item, in their order. Threads work on `limit` items at most.

    The next item begins when the caller has handled the oldest result. So a caller whose items end then begins no
    further one, and still gets the results of those that have begun.
    """
    remaining = iter(items)
    with ThreadPoolExecutor(limit) as threads:
        begun = deque(threads.submit(work, item) for item in islice(remaining, limit))
        while begun:
            yield begun.popleft().result()
            begun += (threads.submit(work, item) for item in islice(remaining, 1))
