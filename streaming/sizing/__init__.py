"""The size of a coordinator for a load: formulas over a table of measured costs.

`load`, `costs`, `batches`, `plan` and `lines` are pure; `table` reads and writes the file with the costs.
"""

from streaming.sizing.batches import Batches, Load
from streaming.sizing.costs import COSTS, BadCosts, Costs, Figure, read_costs, shipped_costs
from streaming.sizing.lines import LINES, Size, Sizes, sizes

__all__ = [
    "COSTS",
    "LINES",
    "BadCosts",
    "Batches",
    "Costs",
    "Figure",
    "Load",
    "Size",
    "Sizes",
    "read_costs",
    "shipped_costs",
    "sizes",
]
