#!/usr/bin/env bash
# Spark Structured Streaming: a second driver on a checkpoint is not refused, and ends the first one after its output.
#
# A driver in another process may start while the first one is in the middle of a batch. It takes the batch for one that
# was cut short, writes the batch's output itself, and goes on. The first driver notices nothing until its batch is over:
# its late output comes after newer batches, and only then it fails. The older driver loses, not the second one.
#
# A driver that was slow or paused and has been replaced therefore still writes old rows over newer ones.
#
# Needs: python3, java 17. Takes about a minute. Exits with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv && venv/bin/pip -q install --no-compile pyspark==4.2.0

cat > driver.py <<'PY'
import os, sys, time
from pathlib import Path
import pyspark
from pyspark.sql import SparkSession

here, name = Path.cwd(), sys.argv[1]
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "600m")
         .config("spark.ui.showConsoleProgress", "false").config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
         .getOrCreate())
spark.sparkContext.setLogLevel("OFF")

def until(true):
    end = time.monotonic() + 300
    while not true() and time.monotonic() < end:
        time.sleep(0.1)

def write(frame, number):
    rows = [row.value for row in frame.collect()]
    if (name, number) == ("first", 1):
        (here / "paused").touch()
        until((here / "continue").exists)
    with (here / "output").open("a") as output:
        output.write(f"{name} driver, batch {number}: rows {min(rows)} to {max(rows)}\n")

query = (spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
         .writeStream.foreachBatch(write).trigger(processingTime="1 second")
         .option("checkpointLocation", str(here / "checkpoint")).start())
until((here / f"{name}.stop").exists if name == "second" else lambda: not query.isActive)
error = query.exception()
query.stop()
spark.stop()
(here / f"{name}.end").write_text("was running" if error is None else "failed: " + str(error).splitlines()[0][:200])
PY
wait_for() {
  for _ in $(seq 3000); do [ ! -e "$1" ] || return 0; sleep 0.1; done
  cat ./*.log >&2
  return 1
}
venv/bin/python driver.py first > first.log 2>&1 & pids+=($!)
wait_for paused                                     # in batch 1, before its output
venv/bin/python driver.py second > second.log 2>&1 & pids+=($!)
wait_for checkpoint/commits/2
touch continue
wait_for first.end
touch second.stop
wait_for second.end

venv/bin/pip list 2> errors | grep pyspark
cat output
echo "the first driver: $(cat first.end)"
echo "the second driver: $(cat second.end)"
places() { grep -n "$1" output | cut -d: -f1; }
[ "$(grep -c 'batch 1: rows 10 to 19' output)" = 2 ]
[ "$(places 'first driver, batch 1')" -gt "$(places 'second driver, batch 2')" ]
[ "$(grep -c 'first driver' output)" = 2 ]                  # its batches 0 and 1
grep -q 'failed: .*CONCURRENT' first.end
grep -q 'was running' second.end
