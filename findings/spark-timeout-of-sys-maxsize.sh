#!/usr/bin/env bash
# Spark's applyInPandasWithState: a group whose timeout is sys.maxsize milliseconds times out in the same batch.
#
# The duration is added to the batch's time. The sum does not fit into 64 bits and becomes negative, and no error is
# raised. A time before now is due, so the group gets its call with hasTimedOut at once. Half of it, 2**62, works.
#
# "No timeout" written as the largest number, which is usual elsewhere, is the shortest timeout of all.
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
HOUR, HALF, ALL = 3_600_000, 2**62, sys.maxsize

def handle(key, frames, state):
    if state.hasTimedOut:
        yield pandas.DataFrame({"duration": [key[0]], "call": ["timeout"]})
        state.remove()
    else:
        yield pandas.DataFrame({"duration": [key[0]], "call": ["rows"]})
        state.update((0,))
        state.setTimeoutDuration(int(key[0]))

seen, batches = [], []

def collect(frame, number):
    seen.extend((number, row.duration, row.call) for row in frame.collect())
    batches.append(number)

(here / "in").mkdir()
(here / "in" / "a").write_text(f"{HOUR}\n{HALF}\n{ALL}\n")
query = (spark.readStream.text(str(here / "in")).groupBy("value")
         .applyInPandasWithState(handle, "duration string, call string", "n long", "append", GroupStateTimeout.ProcessingTimeTimeout)
         .writeStream.foreachBatch(collect).option("checkpointLocation", str(here / "checkpoint")).start())
end = time.monotonic() + 300
while not batches[-1:] > [1] and time.monotonic() < end:
    time.sleep(0.1)
query.stop()
spark.stop()
calls = {each: [(number, call) for number, who, call in seen if who == str(each)] for each in (HOUR, HALF, ALL)}
print(f"pyspark {pyspark.__version__}, batches {batches}")
for each, called in calls.items():
    print(f"timeout of {each} ms: (batch, call) =", *called)
sys.exit(not (len(batches) > 2 and calls == {HOUR: [(0, "rows")], HALF: [(0, "rows")], ALL: [(0, "rows"), (0, "timeout")]}))
PY
venv/bin/python main.py 2> errors || { cat errors >&2; exit 1; }
