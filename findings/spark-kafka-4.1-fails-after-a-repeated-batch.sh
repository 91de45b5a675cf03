#!/usr/bin/env bash
# Spark 4.1's Kafka source: the start after a failed batch runs the batch to its end, and then fails by itself.
#
# After a batch has failed, the next start repeats it, as promised. The repeated batch succeeds and is committed. Then
# the source computes its lag for the progress report, and has not asked for the latest offsets yet: a call on null ends
# the query. The start after that one works. Spark's issue SPARK-55271 is about the same error.
#
# One fault of the user's becomes two failed starts, and the second one names nothing of the user's code.
#
# Needs: python3, java 17, mvn. Takes about a minute and a half. Exits with 1 if the behaviour has changed.
set -euo pipefail
KAFKA=4.4.0 SPARK=4.1.1 CONFLUENT=2.16.1
folder=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

alone='<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>'
jar() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version>${4:-}</dependency>"; }
jars() {                                            # the name of a folder, and dependencies
  mkdir "$1"
  echo "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion><groupId>x</groupId>
    <artifactId>x</artifactId><version>1</version><dependencies>$2</dependencies></project>" > "$1/pom.xml"
  mvn -q -B -f "$1/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory="$folder/$1"
}
jars kafka "$(jar org.apache.kafka kafka_2.13 "$KAFKA")"
jars connector "$(jar org.apache.spark spark-sql-kafka-0-10_2.13 "$SPARK" "$alone"
  jar org.apache.spark spark-token-provider-kafka-0-10_2.13 "$SPARK" "$alone"
  jar org.apache.kafka kafka-clients 3.9.1 "$alone"
  jar org.apache.commons commons-pool2 2.12.1 "$alone")"
python3 -m venv venv && venv/bin/pip -q install --no-compile "pyspark==$SPARK" "confluent-kafka==$CONFLUENT"

read -r -a port < <(python3 - <<'PY'
import socket
found = [socket.socket() for _ in range(2)]
for each in found:
    each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in found))
PY
)
cat > broker.properties <<PROPERTIES
node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:${port[0]},CONTROLLER://127.0.0.1:${port[1]}
controller.quorum.voters=1@127.0.0.1:${port[1]}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
offsets.topic.replication.factor=1
log.dirs=data
PROPERTIES
java -Xmx128m -cp 'kafka/*' kafka.tools.StorageTool format --config broker.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAA > format.log 2>&1
java -Xmx256m -XX:TieredStopAtLevel=1 -cp 'kafka/*' kafka.Kafka broker.properties > broker.log 2>&1 & broker=$!

cat > main.py <<'PY'
import os, sys, time
from pathlib import Path
import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

here, servers = Path.cwd(), sys.argv[1]
os.environ["PYSPARK_PYTHON"] = sys.executable
admin = AdminClient({"bootstrap.servers": servers})
admin.create_topics([NewTopic("t", num_partitions=1)], request_timeout=120)["t"].result()
producer = Producer({"bootstrap.servers": servers})
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "600m")
         .config("spark.jars", ",".join(map(str, (here / "connector").glob("*.jar"))))
         .config("spark.ui.showConsoleProgress", "false").config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
         .getOrCreate())
spark.sparkContext.setLogLevel("OFF")
rows, faults = [], []

def handle(frame, number):
    found = [(number, bytes(row.value).decode()) for row in frame.collect()]
    if faults:
        raise RuntimeError(faults.pop())
    rows.extend(found)

def start():
    return (spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "t")
            .option("startingOffsets", "earliest").load().writeStream.foreachBatch(handle)
            .option("checkpointLocation", str(here / "checkpoint")).start())

def send(value):
    producer.produce("t", value)
    producer.flush(60)

def until(true):
    end = time.monotonic() + 120
    while not true() and time.monotonic() < end:
        time.sleep(0.1)

def commits():
    return sorted(each.name for each in (here / "checkpoint" / "commits").glob("[0-9]*"))

def ended(query):
    error = query.exception()
    return "runs" if error is None else "failed: " + str(error).splitlines()[0][:150]

send("a")
query = start()
until(lambda: commits() == ["0"])
faults.append("the user's fault")
send("b")
until(lambda: not query.isActive)
first = "failed" if "the user's fault" in str(query.exception()) else ended(query)
print(f"pyspark and its Kafka connector {pyspark.__version__}")
print("batch 1 raises once:  ", first, "- commits", *commits())
query = start()
until(lambda: not query.isActive)
second, after = ended(query), commits()
print("next start:           ", second, "- commits", *after)
query = start()
send("c")
until(lambda: len(rows) == 3 or not query.isActive)
third = ended(query)
query.stop()
spark.stop()
print("the start after that: ", third, "- rows", *rows)
sys.exit(not (first == "failed" and "is null" in second and after == ["0", "1"] and third == "runs"
              and rows == [(0, "a"), (1, "b"), (2, "c")]))
PY
venv/bin/python main.py "127.0.0.1:${port[0]}" 2> errors || { cat errors >&2; exit 1; }
