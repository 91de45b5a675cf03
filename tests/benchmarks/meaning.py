"""The meaning of one figure."""

from typing import NamedTuple


class Meaning(NamedTuple):
    """The meaning of a figure, and the largest or smallest value that meets its goal, if it has a goal."""

    says: str
    goal_max: float | None = None
    goal_min: float | None = None
