#!/usr/bin/env bash
# Kafka's own tool for groups shows lag of records that were deleted and that nobody can read.
#
# LAG is the end of the log minus the committed offset, and the start of the log is not asked for. After a deletion, by
# retention or by a request, the records below the start still count, although the group that continues gets the rest
# only. With an empty log the lag is as large as before, and stays until the group commits again.
#
# An alarm on this lag goes off while there is no work, and says nothing of the real fault: records were lost unread.
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
group.initial.rebalance.delay.ms=0
log.dirs=data
PROPERTIES
java -Xmx128m -cp 'jars/*' kafka.tools.StorageTool format --config broker.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAA > format.log 2>&1
java -Xmx256m -XX:TieredStopAtLevel=1 -cp 'jars/*' kafka.Kafka broker.properties > broker.log 2>&1 & broker=$!

cat > main.py <<'PY'
import subprocess, sys
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers, kafka = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": servers})
admin.create_topics([NewTopic(name, num_partitions=1) for name in ("some", "none")], request_timeout=120)
starts = {"some": 8, "none": 10}

def lag(group):
    """Return the tool's offsets and lag of each topic of the group."""
    shown = subprocess.run(
        ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", "jars/*", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
         "--bootstrap-server", servers, "--describe", "--group", group, "--timeout", "60000"],
        capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in shown.splitlines() if line.strip()]
    header = next(line for line in lines if "LAG" in line)
    table = [dict(zip(header, line)) for line in lines if line is not header and line[0] == group]
    return {row["TOPIC"]: (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in table}

producer = Producer({"bootstrap.servers": servers})
for name in starts:
    for number in range(10):
        producer.produce(name, str(number), partition=0)
producer.flush(60)
committed = ConsumerGroupTopicPartitions("g", [TopicPartition(name, 0, 2) for name in starts])
admin.alter_consumer_group_offsets([committed])["g"].result()
before = lag("g")
for done in admin.delete_records([TopicPartition(name, 0, start) for name, start in starts.items()]).values():
    done.result()
after = lag("g")

consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "enable.partition.eof": True})
consumer.assign([TopicPartition(name, 0) for name in starts])  # continues at the committed offsets
read, ends = {name: [] for name in starts}, set()
for _ in range(200):
    message = consumer.poll(1)
    if message is not None and message.error():
        ends.add(message.topic())
    elif message is not None:
        read[message.topic()].append(int(message.value()))
    if ends == set(starts):
        break
consumer.close()
print(f"kafka-consumer-groups of Kafka {kafka}: (committed, end, lag)")
for name, start in starts.items():
    print(f"topic {name}: {before[name]}; records below {start} deleted: {after[name]}; the group can read {read[name]}")
sys.exit(not (before == after == {name: ("2", "10", "8") for name in starts} and read == {"some": [8, 9], "none": []}))
PY
venv/bin/python main.py "127.0.0.1:${port[0]}" "$KAFKA" 2> errors || { cat errors >&2; exit 1; }
