#!/usr/bin/env bash
# Spark's applyInPandasWithState: after a restart no processing-time timeout fires until a row of any group comes.
#
# A running query with such timeouts plans batches without rows, so that a timeout fires soon after it is due. A query
# that was stopped and started again plans no batch before its first row, although timeouts in its state are overdue.
# A row of another group brings the overdue calls at once.
#
# A session that should end, or an alarm that should be raised, waits for as long as the input is silent.
#
# Needs: python3, java 17. Takes about a minute and a half. Exits with 1 if the behaviour has changed.
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
SILENCE_S = 20

def handle(key, frames, state):
    yield pandas.DataFrame({"name": [key[0]], "call": ["timeout" if state.hasTimedOut else "rows"]})
    if state.hasTimedOut:
        state.remove()
    elif key[0] == "early":
        state.update((0,))
        state.setTimeoutDuration(1)

def put(name, row):
    (here / name).mkdir(exist_ok=True)
    (here / row).write_text(row + "\n")
    os.rename(here / row, here / name / row)

def start(name, every):
    seen[name] = []
    return (spark.readStream.text(str(here / name)).groupBy("value")
            .applyInPandasWithState(handle, "name string, call string", "n long", "append", GroupStateTimeout.ProcessingTimeTimeout)
            .writeStream.foreachBatch(lambda frame, number: seen[name].extend((r.name, r.call) for r in frame.collect()))
            .trigger(processingTime=every).option("checkpointLocation", str(here / f"{name}-checkpoint")).start())

def until(true):
    end = time.monotonic() + 300
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(seen)
        time.sleep(0.1)

seen = {}
put("running", "early")
query = start("running", "1 second")
until(lambda: ("early", "timeout") in seen["running"])
query.stop()

put("stopped", "early")
query = start("stopped", "1 hour")                      # one batch, and then the stop
until((here / "stopped-checkpoint" / "commits" / "0").exists)
query.stop()
first = seen["stopped"]
query = start("stopped", "1 second")
time.sleep(SILENCE_S)
silent, status = list(seen["stopped"]), query.status["message"]
put("stopped", "another")
until(lambda: len(seen["stopped"]) >= 2)
query.stop()
spark.stop()
print("pyspark", pyspark.__version__)
print("timeout of 1 ms, query runs on, no more rows:  ", *seen["running"])
print("before the stop:                               ", *first)
print(f"{SILENCE_S} s after the next start:                   ", silent or "no call", "-", status)
print("after a row of another group:                  ", *seen["stopped"])
row, late = ("early", "rows"), ("early", "timeout")
sys.exit(not (seen["running"] == [row, late] and first == [row] and not silent
              and sorted(seen["stopped"]) == [("another", "rows"), late]))
PY
venv/bin/python main.py 2> errors || { cat errors >&2; exit 1; }
