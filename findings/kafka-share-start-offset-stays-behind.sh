#!/usr/bin/env bash
# The start offset of a share group stays where it was, although its consumer has acknowledged all records.
#
# DescribeShareGroupOffsets tells the start offset and, since Kafka 4.2, the lag. A share consumer reads all records and
# acknowledges them. The lag is 0 then, and the start offset is still 0: it stays behind for as long as nobody fetches
# again. So the end of the log minus the start offset is no lag. Version 0 of the request, and every tool that computes
# the lag as that of a consumer group, tell the whole log as unread work of a group that has done all.
#
# Needs: python3, java 17, mvn. Takes about a minute. Exits with 1 if the behaviour has changed.
set -euo pipefail
KAFKA=4.4.0 CONFLUENT=2.16.1
folder=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -9 "$broker" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

cat > pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$KAFKA</version></dependency>
</dependencies></project>
POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=jars
python3 -m venv venv && venv/bin/pip -q install --no-compile "confluent-kafka==$CONFLUENT"

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
offsets.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.dirs=data
PROPERTIES
java -Xmx128m -cp 'jars/*' kafka.tools.StorageTool format --config broker.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAA > format.log 2>&1
java -Xmx256m -XX:TieredStopAtLevel=1 -cp 'jars/*' kafka.Kafka broker.properties > broker.log 2>&1 & broker=$!

cat > main.py <<'PY'
import subprocess, sys, time
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

servers, kafka = sys.argv[1:]
RECORDS, QUIET_S = 50, 15
admin = AdminClient({"bootstrap.servers": servers})
admin.create_topics([NewTopic("t", num_partitions=1)], request_timeout=120)["t"].result()
earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
group = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[earliest])
admin.incremental_alter_configs([group])[group].result()
producer = Producer({"bootstrap.servers": servers})
for number in range(RECORDS):
    producer.produce("t", str(number))
producer.flush(60)

def told():
    """Return the start offset and the lag that Kafka's tool shows."""
    shown = subprocess.run(
        ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
         "--bootstrap-server", servers, "--describe", "--offsets", "--group", "g", "--timeout", "60000"],
        capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in shown.splitlines() if line.startswith("g ")]
    return tuple(rows[0][3:5]) if rows else None

read = 0
consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": "g"})
consumer.subscribe(["t"])
until_s = time.monotonic() + 90
while time.monotonic() < until_s:
    read += len(list(consumer.poll(0.5) or ()))  # each poll acknowledges the records of the one before
    if read >= RECORDS and (now := told()) is not None and now[1] == "0":
        break
consumer.close()
time.sleep(QUIET_S)
start, lag = told()
end = Consumer({"bootstrap.servers": servers, "group.id": "unused"}).get_watermark_offsets(TopicPartition("t", 0))[1]
print(f"Kafka {kafka}, DescribeShareGroupOffsets: {read} of {end} records read and acknowledged")
print(f"{QUIET_S} s after that: start offset {start}, lag {lag}; the end minus the start offset is {end - int(start)}")
sys.exit(not (read == end == RECORDS and (start, lag) == ("0", "0")))
PY
venv/bin/python main.py "127.0.0.1:${port[0]}" "$KAFKA" 2> errors || { cat errors >&2; exit 1; }
