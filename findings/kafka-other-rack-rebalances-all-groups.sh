#!/usr/bin/env bash
# All groups of the consumer protocol rebalance when a broker comes back with another rack.
#
# Since 4.1 each group epoch has a hash of the subscribed topics (KIP-1101), and the racks of all replicas belong to it.
# Neither of the server assignors, range and uniform, looks at racks. But when broker.rack is introduced, or replicas
# move between racks, Kafka raises the epoch of each group that subscribes to such a topic, and plans it anew: to the
# same assignment. After a rolling restart with racks this meets every group of the cluster at the same time.
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
log.dirs=data
PROPERTIES
java -Xmx128m -cp 'jars/*' kafka.tools.StorageTool format --config broker.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAA > format.log 2>&1
start_broker() {
java -Xmx256m -XX:TieredStopAtLevel=1 -cp 'jars/*' kafka.Kafka broker.properties > broker.log 2>&1 & broker=$!
}
start_broker

cat > main.py <<'PY'
import subprocess, sys, time
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers, kafka = sys.argv[1:]
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

consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "group.protocol": "consumer", "auto.offset.reset": "earliest"})
consumer.subscribe(["t"])

def poll(until, within_s):
    until_s = time.monotonic() + within_s
    while not until() and time.monotonic() < until_s:
        consumer.poll(0.1)

poll(lambda: len(consumer.assignment()) == 4, 60)
poll(lambda: False, 5)
before, owned = epochs(), sorted(map(str, consumer.assignment()))

def restart():
    """Ask the script to restart the broker, and wait until a consumer reads from it again."""
    print("restart", flush=True)
    sys.stdin.readline()
    poll(lambda: False, 20)
    return epochs()

same_rack = restart()
other_rack = restart()
owned_after = sorted(map(str, consumer.assignment()))
consumer.close()
added = [len(same_rack) - len(before), len(other_rack) - len(same_rack)]
print(f"told Kafka {kafka}: group epochs after a restart of the broker: {added[0]}; after one with another rack: {added[1]}", flush=True)
print(f"told the metadata hash changed: {other_rack[-1][1] != before[-1][1]}; the assignment changed: {owned_after != owned}", flush=True)
sys.exit(not (added[0] == 0 and added[1] >= 1 and other_rack[-1][1] != before[-1][1] and owned_after == owned))
PY
coproc WATCH { venv/bin/python main.py "127.0.0.1:${port[0]}" "$KAFKA" 2> errors; }
watch=$WATCH_PID restarts=0
while read -r line <&"${WATCH[0]}"; do
  case $line in
    restart)
      kill "$broker" && wait "$broker" || true
      restarts=$((restarts + 1))
      [ "$restarts" = 1 ] || echo broker.rack=rack-a >> broker.properties
      start_broker
      echo go >&"${WATCH[1]}" ;;
    told*) echo "${line#told }" ;;
  esac
done
wait "$watch" || { cat errors >&2; exit 1; }
