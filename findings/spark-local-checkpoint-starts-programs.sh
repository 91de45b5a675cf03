#!/usr/bin/env bash
# Spark Structured Streaming: a checkpoint on a local disk costs the start of twenty programs for each batch.
#
# A batch without state writes two files, its plan and its commit, each with a checksum file. For each of the four,
# Hadoop starts chmod once; and for each rename, which asks whether the names are links, it starts readlink four times.
# It starts chmod because the Python package contains no native Hadoop library, of which one log line tells.
#
# With short batches on a small machine this costs much, and no profile of Spark or Java shows the time of the programs.
#
# Needs: python3, java 17, Linux. Takes about a minute. Exits with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv && venv/bin/pip -q install --no-compile pyspark==4.2.0

mkdir programs                                      # each notes its name and arguments before the real program runs
for name in chmod readlink; do
  printf '#!/bin/sh\necho "%s $*" >> "%s"\nexec "%s" "$@"\n' "$name" "$folder/started" "$(command -v "$name")" > "programs/$name"
done
chmod +x programs/*

cat > main.py <<'PY'
import os, re, sys, time
from pathlib import Path
import pyspark
from pyspark.sql import SparkSession

here = Path.cwd()
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "600m")
         .config("spark.ui.showConsoleProgress", "false").config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
         .getOrCreate())
spark.sparkContext.setLogLevel("OFF")
query = (spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
         .writeStream.format("noop").trigger(processingTime="1 second")
         .option("checkpointLocation", str(here / "checkpoint")).start())
end = time.monotonic() + 300
while not (here / "checkpoint" / "commits" / "3").exists() and time.monotonic() < end:
    time.sleep(0.1)
query.stop()
spark.stop()
started = (here / "started").read_text().splitlines()
of_batch = [line for line in started if re.search(r"/checkpoint/(offsets|commits)/\.*2(\.|$)", line)]
counts = {name: sum(line.startswith(name + " ") for line in of_batch) for name in ("chmod", "readlink")}
print("pyspark", pyspark.__version__)
print("programs that were started for the files of batch 2:", counts)
for line in of_batch[:10]:
    print("   ", re.sub(r"[0-9a-f]{8}-[-0-9a-f]{27}", "UUID", line.replace(str(here), "")))
print("    ...")
sys.exit(counts != {"chmod": 4, "readlink": 16})
PY
PATH="$folder/programs:$PATH" venv/bin/python main.py 2> errors || { cat errors >&2; exit 1; }
