"""The versions of Python, pyspark and Kafka with which the product is tested, one after another.

A `Column` is one combination of versions. In each, the built wheel is installed in an environment of its own, and does
the same steps. `table` is the table of docs/install.md.
"""

from tests.compatibility.columns import COLUMNS, Column
from tests.compatibility.steps import STEPS, Site
from tests.compatibility.table import table

__all__ = ["COLUMNS", "STEPS", "Column", "Site", "table"]
