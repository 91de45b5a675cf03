#!/usr/bin/env bash
# Spark Structured Streaming: the plan of a batch has a checksum file beside it, and Spark does not compare the two.
#
# On a local disk each `offsets/N` has its `.N.crc`, which Hadoop writes and compares. If one digit of a plan is changed,
# by an editor or a bad disk, Spark's own reader of text files refuses the file with a ChecksumException. The query
# starts from the changed offset without a word: rows are skipped, or come twice.
#
# Who sees the .crc files takes a checkpoint as protected, and such a disk as one that would be noticed.
#
# Needs: python3, java 17. Takes about a minute. Exits with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv && venv/bin/pip -q install --no-compile pyspark==4.2.0

cat > main.py <<'PY'
import os, shutil, sys, time
from pathlib import Path
import pyspark
from pyspark.sql import SparkSession

here = Path.cwd()
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "600m")
         .config("spark.ui.showConsoleProgress", "false").config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
         .getOrCreate())
spark.sparkContext.setLogLevel("OFF")

def run(checkpoint):
    """Run one batch, and return its number and the numbers of its first and last row."""
    seen = []

    def collect(frame, number):
        rows = [row.value for row in frame.collect()]
        seen.append((number, min(rows), max(rows)))

    query = (spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 40).option("numPartitions", 1).load()
             .writeStream.foreachBatch(collect).trigger(processingTime="1 hour")
             .option("checkpointLocation", str(here / checkpoint)).start())
    end = time.monotonic() + 300
    while not (seen and (here / checkpoint / "commits" / str(seen[0][0])).exists()) and time.monotonic() < end:
        if error := query.exception():
            raise error
        time.sleep(0.1)
    query.stop()
    return seen[0]

def change(checkpoint, offset):
    shutil.copytree(here / "right", here / checkpoint)
    plan = here / checkpoint / "offsets" / "0"
    text = plan.read_text()
    assert text.count('{"offset":40,') == 1
    plan.write_text(text.replace('{"offset":40,', '{"offset":%d,' % offset))
    try:
        spark.read.text(str(plan)).collect()
        return "reads it"
    except Exception as error:
        return "ChecksumException" if "ChecksumException" in str(error) else repr(error)

def show(batch):
    return "rows {1} to {2} in batch {0}".format(*batch)

first = run("right")
lower, higher = change("lower", 10), change("higher", 90)
is_there = (here / "lower" / "offsets" / ".0.crc").exists()
twice, skipped = run("lower"), run("higher")
right = run("right")
spark.stop()
print(f"pyspark {pyspark.__version__}; offsets/.0.crc exists: {is_there}")
print("first run:                          ", show(first))
print("next run:                           ", show(right))
print("next run, plan changed from 40 to 10:", show(twice), "- another reader:", lower)
print("next run, plan changed from 40 to 90:", show(skipped), "- another reader:", higher)
sys.exit(not (is_there and lower == higher == "ChecksumException" and first == (0, 0, 39) and right == (1, 40, 79)
              and twice == (1, 10, 49) and skipped == (1, 90, 129)))
PY
venv/bin/python main.py 2> errors || { cat errors >&2; exit 1; }
