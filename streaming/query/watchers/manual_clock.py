"""The clock of the query's trigger, which stands still until the wake-up moves it on.

A query waits for a time of its trigger's clock. Spark's own clock that stands still, ManualClock, wakes it 100 times a
second to look at the time. This clock wakes it when the time has changed, so that a query at rest uses no processor.

Source: Spark's ProcessingTimeExecutor and ManualClock.
"""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.query.spark import janino

NAME = "BellClock"
SOURCE = f"""
public class {NAME} extends org.apache.spark.util.ManualClock {{
    public synchronized long waitTillTime(long targetMs) throws InterruptedException {{
        while (getTimeMillis() < targetMs) {{
            wait();
        }}
        return getTimeMillis();
    }}
}}
"""


def install_manual_clock(spark: SparkSession, query: StreamingQuery) -> Any:
    """Replace the clock of a query's trigger by one that only its `advance` moves, and return it.

    Args:
        query: It has run a batch.

    Raises:
        Py4JError: This version of Spark has no such clock.
    """
    executor = query._jsq.streamingQuery().triggerExecutor()
    clock = janino.loader_of(spark.sparkContext._jvm, SOURCE).loadClass(NAME).newInstance()
    clock.setTime(executor.clock().getTimeMillis())
    field = executor.getClass().getDeclaredField("clock")
    field.setAccessible(True)
    field.set(executor, clock)
    return clock
