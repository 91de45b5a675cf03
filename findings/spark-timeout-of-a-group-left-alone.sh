#!/usr/bin/env bash
# Spark's applyInPandasWithState: a call with rows ends a group's timeout only if it also changes the state.
#
# The documentation of GroupState says that each call for a group resets its timeout, so that a call which sets none
# leaves the group without one. This holds if the call updates the state. If it only reads the state, the old timeout
# stays. If that is due by then, the group has two calls in one batch: with the rows, and then with hasTimedOut.
#
# A function that only looks at a row, and returns early, therefore sees its group time out right after a sign of life.
#
# Needs: python3, java 17. Takes about a minute. Exits with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv && venv/bin/pip -q install --no-compile pyspark==4.2.0 pandas==2.3.3 pyarrow==22.0.0

cat > main.py <<'PY'
import os, sys, time
from pathlib import Path
import pandas, pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

here = Path.cwd()
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "600m")
         .config("spark.sql.shuffle.partitions", "1").config("spark.ui.showConsoleProgress", "false")
         .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate())
spark.sparkContext.setLogLevel("OFF")

def put(name, text):
    (here / name).write_text(text)
    os.rename(here / name, here / "in" / name)

def until(true):
    end = time.monotonic() + 300
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(seen)
        time.sleep(0.1)

def handle(key, frames, state):
    rows = [value for frame in frames for value in frame["what"]]
    yield pandas.DataFrame({"name": [key[0]], "call": ["timeout" if state.hasTimedOut else rows[0]]})
    if rows == ["first"]:
        state.update((0,))
        state.setTimeoutDuration(1)
        (here / "running").touch()
        while not (here / "go").exists():           # until the rows of the next batch are there
            time.sleep(0.05)
    elif state.hasTimedOut:
        state.remove()
    elif key[0] == "updates":
        state.update((1,))

seen, batches = [], []

def collect(frame, number):
    seen.extend((number, row.name, row.call) for row in frame.collect())
    batches.append(number)

(here / "in").mkdir()
put("a", "reads first\nupdates first\n")
words = spark.readStream.text(str(here / "in")).selectExpr("split(value, ' ')[0] AS name", "split(value, ' ')[1] AS what")
query = (words.groupBy("name")
         .applyInPandasWithState(handle, "name string, call string", "n long", "append", GroupStateTimeout.ProcessingTimeTimeout)
         .writeStream.foreachBatch(collect).option("checkpointLocation", str(here / "checkpoint")).start())
until((here / "running").exists)
put("b", "reads second\nupdates second\n")
(here / "go").touch()
until(lambda: batches[-1:] > [3])                   # two more batches, in which a late timeout would show
query.stop()
spark.stop()
calls = {name: [(number, call) for number, who, call in seen if who == name] for name in ("reads", "updates")}
print("pyspark", pyspark.__version__)
print("second call only reads the state: (batch, call) =", *calls["reads"])
print("second call updates the state:    (batch, call) =", *calls["updates"])
sys.exit(calls != {"reads": [(0, "first"), (1, "second"), (1, "timeout")], "updates": [(0, "first"), (1, "second")]})
PY
venv/bin/python main.py 2> errors || { cat errors >&2; exit 1; }
