#!/usr/bin/env bash
# A group of two consumers that name different server assignors rebalances at every heartbeat, for ever.
#
# group.remote.assignor is a wish. The brokers take the assignor that most members name, and "range" and "uniform" are
# named once each here. Kafka 4.4.0 finds at each heartbeat of one of the members that the preferred assignor is another
# one than before, and raises the group epoch. No member, no topic and no assignment changes. No log line and no tool
# tells the reason; the assignment stays as it was, so the work goes on, with a rebalance every few seconds.
#
# As soon as both members name the same assignor, the group rests.
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
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=500
group.consumer.assignment.interval.ms=0
log.dirs=data
PROPERTIES
java -Xmx128m -cp 'jars/*' kafka.tools.StorageTool format --config broker.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAA > format.log 2>&1
java -Xmx256m -XX:TieredStopAtLevel=1 -cp 'jars/*' kafka.Kafka broker.properties > broker.log 2>&1 & broker=$!

cat > main.py <<'PY'
import sys, time
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers, kafka = sys.argv[1:]
WATCH_S = 10
admin = AdminClient({"bootstrap.servers": servers})
admin.create_topics([NewTopic("t", num_partitions=4)], request_timeout=120)["t"].result()

def epochs():
    """Return the epochs of the group that the log of its coordinator has, with their metadata hashes."""
    reader = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
    reader.assign([TopicPartition("__consumer_offsets", 0, OFFSET_BEGINNING)])
    end, found = reader.get_watermark_offsets(TopicPartition("__consumer_offsets", 0))[1], []
    while reader.position([TopicPartition("__consumer_offsets", 0)])[0].offset < end:
        for message in reader.consume(500, 1):
            if not message.error() and message.key()[:2] == b"\0\3" and message.value():
                tagged = message.value()[6:]  # version and epoch come before the tagged fields
                found.append((int.from_bytes(message.value()[2:6]), tagged.hex()))
    reader.close()
    return found

def member(assignor):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "group.protocol": "consumer",
                         "group.remote.assignor": assignor, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    return consumer

def settle(*members):
    until_s = time.monotonic() + 60
    while not all(len(each.assignment()) == 4 // len(members) for each in members) and time.monotonic() < until_s:
        for each in members:
            each.poll(0.1)

def watched(*members):
    """Return the epochs of some seconds, and whether an assignment changed."""
    before, owned = len(epochs()), [sorted(each.assignment()) for each in members]
    until_s = time.monotonic() + WATCH_S
    while time.monotonic() < until_s:
        for each in members:
            each.poll(0.1)
    return epochs()[before:], owned != [sorted(each.assignment()) for each in members]

one, two = member("range"), member("uniform")
settle(one, two)
raised, has_changed = watched(one, two)
hashes = {tagged for _, tagged in raised}
two.close()
three = member("range")
settle(one, three)
raised_alike, _ = watched(one, three)
one.close(), three.close()
print(f"Kafka {kafka}, members of one group that name range and uniform: {len(raised)} group epochs in {WATCH_S} s")
print(f"with one metadata hash: {len(hashes) == 1}; an assignment changed: {has_changed}")
print(f"both name range: {len(raised_alike)} group epochs in {WATCH_S} s")
sys.exit(not (len(raised) >= 5 and len(hashes) == 1 and not has_changed and not raised_alike))
PY
venv/bin/python main.py "127.0.0.1:${port[0]}" "$KAFKA" 2> errors || { cat errors >&2; exit 1; }
