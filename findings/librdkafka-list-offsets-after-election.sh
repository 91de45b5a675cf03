#!/usr/bin/env bash
# confluent-kafka (librdkafka) AdminClient.list_offsets fails again and again after a leader has moved.
#
# The admin client sends the leader epoch of the metadata that it has, to the leader that it has. After an election the
# broker answers FENCED_LEADER_EPOCH, or the client no longer knows the leader (_NOENT). The client neither refreshes its
# metadata nor tries again: the caller gets the error, and so does each further call. A call of list_topics() on the same client heals it at once.
#
# A lag monitor or a health check with a client of its own reports a failure although every broker serves.
#
# Needs: python3, java 17, mvn. Takes about two minutes. Exits with 1 if the behaviour has changed.
set -euo pipefail
KAFKA=4.4.0 CONFLUENT=2.16.1
folder=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"

cat > pom.xml <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>x</groupId><artifactId>x</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$KAFKA</version></dependency>
</dependencies></project>
POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=jars
python3 -m venv venv && venv/bin/pip -q install "confluent-kafka==$CONFLUENT"

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
start() { java -Xmx256m -cp 'jars/*' kafka.Kafka "$1.properties" > "$1.log" 2>&1 & pids+=($!); pid[$1]=$!; }
declare -A pid
for node in 1 2 3; do start "$node"; done

cat > main.py <<'PY'
import os, signal, subprocess, sys, time
from confluent_kafka import ElectionType, KafkaException, TopicPartition, libversion, version
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

servers, leader_pid = sys.argv[1], int(sys.argv[2])
place = TopicPartition("t", 0)

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

def has_ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False

def client():
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})

helper = client()

def leader():
    topic = client().list_topics(timeout=10).topics.get("t")
    found = topic.partitions.get(0) if topic else None
    return found and (found.leader, sorted(found.isrs))

def ask(admin):
    try:
        return admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=10)[place].result().offset
    except KafkaException as error:
        return error.args[0].name()

until(lambda: len(client().list_topics(timeout=10).brokers) == 2, "two brokers")
helper.create_topics([NewTopic("t", num_partitions=1, replica_assignment=[[2, 3]])])["t"].result()
until(lambda: leader() == (2, [2, 3]), "a leader")
admin = client()
before = ask(admin)
os.kill(leader_pid, signal.SIGTERM)                     # broker 2 stops, and 3 leads
until(lambda: leader() == (3, [3]), "the other leader")
until(lambda: has_ended(leader_pid), "the end of broker 2, which holds the lock of its folder")
with open("2.again.log", "wb") as log:
    again = subprocess.Popen(["java", "-Xmx256m", "-cp", "jars/*", "kafka.Kafka", "2.properties"], stdout=log, stderr=log)
try:
    until(lambda: leader() == (3, [2, 3]), "a second replica in sync")
    helper.elect_leaders(ElectionType.PREFERRED, [place]).result()
    until(lambda: leader() == (2, [2, 3]), "the first leader again")
    after = []
    for _ in range(5):
        after.append(ask(admin))
        time.sleep(2)
    fresh = ask(client())
    admin.list_topics("t", timeout=10)
    healed = ask(admin)
finally:
    again.kill()
print(f"confluent-kafka {version()}, librdkafka {libversion()[0]}, Kafka", os.environ["KAFKA"])
print("the same admin client, before the leader moved:        ", before)
print("after it had moved away and back, five calls in 10 s:  ", *after)
print("a new client meanwhile:                                ", fresh)
print("the same client after one call of list_topics():       ", healed)
sys.exit(not (before == fresh == healed == 0 and set(after) <= {"FENCED_LEADER_EPOCH", "_NOENT"}))
PY
KAFKA=$KAFKA venv/bin/python main.py "127.0.0.1:${port[1]},127.0.0.1:${port[2]}" "${pid[2]}"
