#!/usr/bin/env bash
# kafka-python: a consumer that pauses a partition before it has read all of a response may never read it again.
#
# A response to a fetch has many records, and poll() returns max_poll_records of them. If the partition is paused in
# between, and records of another partition are read meanwhile, the consumer keeps the rest of the response, but it has
# lost its place among those that poll() looks at. It also counts the partition as fetched, so it sends no fetch for it.
# After resume() poll() returns nothing of this partition, for good, without an error; position() stands still, and the
# lag grows. A seek() does not help. librdkafka's consumer goes on where it was.
#
# Programs that pause() a partition while its records are worked on, and resume() it afterwards, lose it so.
#
# Needs: python3, java 17, mvn. Takes about a minute. Exits with 1 if the behaviour has changed.
set -euo pipefail
KAFKA=4.4.0 KAFKA_PYTHON=3.0.12 CONFLUENT=2.16.1
folder=$(mktemp -d)
trap 'kill -9 "${broker:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

cat > pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
</dependencies></project>
POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=jars
python3 -m venv venv && venv/bin/pip -q install "kafka-python==$KAFKA_PYTHON" "confluent-kafka==$CONFLUENT"

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
controller.quorum.voters=1@127.0.0.1:${port[1]}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:${port[0]},CONTROLLER://127.0.0.1:${port[1]}
offsets.topic.replication.factor=1
log.dirs=data
PROPERTIES
java -Xmx128m -cp 'jars/*' kafka.tools.StorageTool format --config broker.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAA > /dev/null 2>&1
java -Xmx256m -cp 'jars/*' kafka.Kafka broker.properties > broker.log 2>&1 &
broker=$!

cat > main.py <<'PY'
import os, sys, time
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

server, RECORDS, AT_ONCE, WAIT_S = sys.argv[1], 100, 10, 10.0
admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
admin.create_topics([NewTopic("t", 2, 1)], operation_timeout=60)["t"].result()
producer = confluent_kafka.Producer({"bootstrap.servers": server})
for number in range(2 * RECORDS):
    producer.produce("t", b"%d" % number, partition=number % 2)
producer.flush()


class Python:
    """kafka-python's consumer."""

    def __init__(self):
        self.consumer = kafka.KafkaConsumer(bootstrap_servers=server, auto_offset_reset="earliest", max_poll_records=AT_ONCE)
        self.places = [kafka.TopicPartition("t", number) for number in range(2)]
        self.consumer.assign(self.places)

    def poll(self):
        return [place.partition for place, records in self.consumer.poll(500).items() for _ in records]

    def pause(self, number):
        self.consumer.pause(self.places[number])

    def resume(self, number):
        self.consumer.resume(self.places[number])

    def seek(self, number):
        self.consumer.seek(self.places[number], self.consumer.position(self.places[number]))


class Librdkafka:
    """librdkafka's consumer."""

    def __init__(self):
        self.consumer = confluent_kafka.Consumer({"bootstrap.servers": server, "group.id": "x", "log_level": 0})
        self.consumer.assign([confluent_kafka.TopicPartition("t", number, 0) for number in range(2)])

    def poll(self):
        return [record.partition() for record in self.consumer.consume(AT_ONCE, 0.5)]

    def pause(self, number):
        self.consumer.pause([confluent_kafka.TopicPartition("t", number)])

    def resume(self, number):
        self.consumer.resume([confluent_kafka.TopicPartition("t", number)])


def read(consumer, counts, is_over, wait_s=60.0):
    until = time.monotonic() + wait_s
    while not is_over(counts) and time.monotonic() < until:
        for number in consumer.poll():
            counts[number] += 1


def tried(consumer):
    """Return the records of both partitions: after the pause of one, and after it has been resumed."""
    counts = [0, 0]
    read(consumer, counts, any)
    paused = counts.index(max(counts))
    consumer.pause(paused)
    at_pause = counts[paused]
    read(consumer, counts, lambda found: found[1 - paused] == RECORDS)
    consumer.resume(paused)
    read(consumer, counts, lambda found: found[paused] == RECORDS, WAIT_S)
    return at_pause, counts[paused], counts, paused


print(f"kafka-python {kafka.__version__}, confluent-kafka {confluent_kafka.version()}, Kafka", os.environ["KAFKA"])
ours = Python()
at_pause, resumed, counts, paused = tried(ours)
print(f"kafka-python: {at_pause} of {RECORDS} records were read at the pause, {resumed} in {WAIT_S:.0f} s after it was resumed")
ours.seek(paused)
read(ours, counts, lambda found: found[paused] >= RECORDS, WAIT_S)
print(f"kafka-python: {counts[paused]} in {WAIT_S:.0f} s more, after a seek to the position")
at_pause_2, resumed_2, _, _ = tried(Librdkafka())
print(f"librdkafka:   {at_pause_2} of {RECORDS} records were read at the pause, {resumed_2} after it was resumed")
sys.exit(not (at_pause == resumed == counts[paused] < RECORDS == resumed_2))
PY
KAFKA=$KAFKA venv/bin/python main.py "127.0.0.1:${port[0]}"
