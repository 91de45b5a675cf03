#!/usr/bin/env bash
# kafka-python's end_offsets() never learns that a leader has moved, and asks the old one as fast as it can.
#
# The old leader lives, and answers NOT_LEADER_OR_FOLLOWER. The consumer sends the request again at once: no pause
# (`retry_backoff_ms`), no request for new metadata. This goes on until the time of the call is over, 30 s by default.
# Then the call fails, although another broker leads and answers. The next call does the same. beginning_offsets() and
# offsets_for_times() share the loop; position() does not.
#
# A lag monitor that keeps its consumer burns a core, here and at the broker, after each election or reassignment of
# partitions, until its metadata is five minutes old.
#
# Needs: python3, java 17, mvn. Takes about two minutes. Exits with 1 if the behaviour has changed.
set -euo pipefail
KAFKA=4.4.0 KAFKA_PYTHON=3.0.12
folder=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

cat > pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
</dependencies></project>
POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=jars
python3 -m venv venv && venv/bin/pip -q install "kafka-python==$KAFKA_PYTHON" confluent-kafka==2.16.1

read -r -a port < <(python3 - <<'PY'
import socket
found = [socket.socket() for _ in range(3)]
for each in found:
    each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in found))
PY
)
common="controller.quorum.voters=1@127.0.0.1:${port[0]}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
auto.leader.rebalance.enable=false"
printf 'node.id=1\nprocess.roles=controller\nlisteners=CONTROLLER://127.0.0.1:%s\nlog.dirs=data-1\n%s\n' "${port[0]}" "$common" > 1.properties
for node in 2 3; do
  printf 'node.id=%s\nprocess.roles=broker\nlisteners=PLAINTEXT://127.0.0.1:%s\nlog.dirs=data-%s\n%s\n' \
    "$node" "${port[node - 1]}" "$node" "$common" > "$node.properties"
done
for node in 1 2 3; do
  java -Xmx128m -cp 'jars/*' kafka.tools.StorageTool format --config "$node.properties" --cluster-id AAAAAAAAAAAAAAAAAAAAAA > /dev/null 2>&1
done
start() { java -Xmx256m -cp 'jars/*' kafka.Kafka "$1.properties" > "$1.log" 2>&1 & pids+=($!); }
for node in 1 2 3; do start "$node"; done

cat > main.py <<'PY'
import logging, os, sys, time
import kafka
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, AlterConfigOpType, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

servers = sys.argv[1]
place, CALL_S, CALLS = TopicPartition("t", 0), 5, 2
admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

def until(true, what):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            if true():
                return
        except KafkaException:
            pass
        time.sleep(0.2)
    raise TimeoutError(what)

def leader():
    topic = admin.list_topics(timeout=10).topics.get("t")
    found = topic.partitions.get(0) if topic else None
    return found and (found.leader, sorted(found.isrs))

class Counting(logging.Handler):
    requests = 0

    def emit(self, record):
        self.requests += record.getMessage().startswith("Sending ListOffsetRequest")

counting = Counting()
logging.getLogger("kafka.consumer.fetcher").addHandler(counting)
logging.getLogger("kafka.consumer.fetcher").setLevel(logging.DEBUG)
logging.getLogger("kafka.consumer.fetcher").propagate = False

def ask(consumer):
    counting.requests, begun_s = 0, time.monotonic()
    try:
        found = consumer.end_offsets([place], timeout_ms=1000 * CALL_S)[place]
    except KafkaError as error:
        found = type(error).__name__
    return found, counting.requests, time.monotonic() - begun_s

until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "two brokers")
admin.create_topics([NewTopic("t", num_partitions=1, replica_assignment=[[2, 3]])])["t"].result()
until(lambda: leader() == (2, [2, 3]), "a leader")
consumer = KafkaConsumer(bootstrap_servers=servers)
before = ask(consumer)
with_order = KafkaAdminClient(bootstrap_servers=servers)
with_order.alter_partition_reassignments({place: [3, 2]})
until(lambda: not with_order.list_partition_reassignments(), "the new order of the replicas")
admin.elect_leaders(ElectionType.PREFERRED, [Place("t", 0)]).result()
until(lambda: leader() == (3, [2, 3]), "the other leader")
until(lambda: ask(consumer)[0] != 0, "an answer of the old leader that it leads no more")
after = [ask(consumer) for _ in range(CALLS)]
fresh = ask(KafkaConsumer(bootstrap_servers=servers))
consumer.assign([place])
consumer.seek_to_end(place)
healed = consumer.position(place, timeout_ms=20_000), ask(consumer)[0]
print(f"kafka-python {kafka.__version__}, Kafka", os.environ["KAFKA"])
for about, (found, requests, took_s) in [
    ("before the leader moved", before), *(("after it", each) for each in after), ("a new consumer", fresh)
]:
    print(f"end_offsets, {about}: {found}, {requests} requests in {took_s:.1f} s")
print("position() of the same consumer, then end_offsets again:", *healed)
moved = all(found == "KafkaTimeoutError" and requests > 50 for found, requests, _ in after)
sys.exit(not (moved and before[0] == fresh[0] == 0 and fresh[1] == 1 and healed == (0, 0)))
PY
KAFKA=$KAFKA venv/bin/python main.py "127.0.0.1:${port[1]},127.0.0.1:${port[2]}"
