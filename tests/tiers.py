"""The tiers of the tests: `make test`, then what `make test-all` adds (`long`), then what `make nightly` adds.

`make test` and `make test-all` run a sample of each matrix of clients and commands; `make nightly` runs the rest.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

NIGHTLY = (pytest.mark.long, pytest.mark.nightly)


def sampled(matrix: Iterable[Any], sample: Sequence[Any]) -> list[Any]:
    """Return the parameters of a test over a matrix: those outside the sample run in `make nightly` only."""
    parameters = list(matrix)
    missing = [each for each in sample if each not in parameters]
    assert not missing, f"not in the matrix: {missing}"
    return [each if each in sample else _nightly(each) for each in parameters]


def _nightly(each: Any) -> Any:
    return pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=NIGHTLY)
