"""The file with the values of the costs. One is part of the package; `make bench` writes it."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import msgspec

from streaming.errors import Exit, UserError
from streaming.sizing.costs import COSTS, VALUE_MAX, Figure

SHIPPED = "costs.json"
FILE_BYTES_MAX = 2**20
"""Two dozen costs with a sentence each have some 5 KB."""

FIGURE_CHARS_MAX = 500

_decode = msgspec.json.Decoder(dict[str, Figure]).decode


class BadCosts(UserError):
    """The file contains no valid costs, or it cannot be read."""

    exit_code = Exit.NEEDS_A_PERSON


def shipped_costs() -> dict[str, Figure]:
    """Return the costs that are part of the package."""
    return parse(files(__package__).joinpath(SHIPPED).read_bytes(), SHIPPED)


def read_costs(file: Path) -> dict[str, Figure]:
    """Return the costs of a file.

    Raises:
        BadCosts: The file cannot be read, or it contains no valid costs.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadCosts(f"{str(file)!r} cannot be read ({error.strerror}).") from error
    return parse(data, str(file))


def parse(data: bytes, name: str) -> dict[str, Figure]:
    """Return the costs of a file's contents.

    Args:
        name: The file's name, for the error.

    Raises:
        BadCosts: The contents are no valid costs.
    """
    if len(data) > FILE_BYTES_MAX:
        raise BadCosts(f"{name!r} is no table of costs: it has more than {FILE_BYTES_MAX:,} bytes.")
    try:
        costs = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadCosts(f"{name!r} is no table of costs ({error}).") from error
    for cost, figure in costs.items():
        if cost not in COSTS:
            raise BadCosts(f"{name!r} has a cost {cost[:100]!r}, which does not exist.")
        if not COSTS[cost].value_min <= figure.value <= VALUE_MAX:
            bounds = f"{COSTS[cost].value_min:g} to {VALUE_MAX:g}"
            raise BadCosts(f"{name!r} has {figure.value:g} for {cost}, whose values are from {bounds}.")
        if len(figure.figure) > FIGURE_CHARS_MAX:
            raise BadCosts(f"{name!r} has a figure of more than {FIGURE_CHARS_MAX} characters for {cost}.")
    return costs


def write_costs(costs: Mapping[str, Figure], file: Path) -> None:
    """Write costs to a file, in the order of `COSTS`.

    Raises:
        BadCosts: A value is out of its range. The file is not changed.
    """
    ordered = {name: costs[name] for name in COSTS if name in costs}
    data = msgspec.json.format(msgspec.json.encode(ordered), indent=2) + b"\n"
    parse(data, str(file))
    file.write_bytes(data)
