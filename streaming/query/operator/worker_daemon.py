"""The process that forks Spark's Python workers. It imports the operator first, so that every fork has it.

Spark ends a worker that was idle for a minute, so a driver that stands by has none. With Spark's own daemon, the next
worker would import pandas and the operator during the first batch.
"""

from pyspark.daemon import manager

import streaming.query.operator.operator  # noqa: F401

if __name__ == "__main__":
    manager()
