"""Query the history of groups with Spark SQL: rebalances by cause, and the longest rebalances.

    python examples/history_job.py --bootstrap-servers localhost:9092 --group rolling-deploy

Spark reads the files that `groupcoord export` writes. Output after examples/rolling_deploy.py; the durations differ:

    rebalances by cause
    rolling-deploy: 1 because member_joined
    rolling-deploy: 1 because member_left
    longest rebalances
    rolling-deploy, generation 1: 7908 ms
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from streaming.history.sql import query, register_files

ROWS_MAX = 10
CAUSES = f"SELECT group_id, cause, sum(rebalances) AS rebalances FROM ({query('rebalances_by_cause')}) GROUP BY ALL"
LONGEST = """
SELECT group_id, generation_id, duration_ms
FROM events
WHERE event = 'rebalance_completed'
ORDER BY duration_ms DESC
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Export the history, and print the results of both queries."""
    parser = argparse.ArgumentParser(description="Query the history of groups with Spark.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic-prefix", default="coordinator", help="the prefix of the coordinator's topics")
    parser.add_argument("--group", action="append", default=[], help="only this group; may be repeated")
    options = parser.parse_args(arguments)
    place = ("--bootstrap-servers", options.bootstrap_servers, "--topic-prefix", options.topic_prefix)
    with tempfile.TemporaryDirectory() as folder:
        export = [sys.executable, "-m", "streaming", "export", "--output", folder, *place, *options.group]
        subprocess.run(export, check=True, stdout=subprocess.DEVNULL)
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
        register_files(spark, Path(folder))
        print("rebalances by cause")
        for row in spark.sql(CAUSES).orderBy("group_id", "cause").limit(ROWS_MAX).collect():
            print(f"{row.group_id}: {row.rebalances} because {row.cause}")
        print("longest rebalances")
        for row in spark.sql(LONGEST).limit(ROWS_MAX).collect():
            print(f"{row.group_id}, generation {row.generation_id}: {row.duration_ms} ms")
        spark.stop()


if __name__ == "__main__":
    main()
