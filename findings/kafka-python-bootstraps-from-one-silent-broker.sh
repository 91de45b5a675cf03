#!/usr/bin/env bash
# kafka-python: a client that is given several bootstrap servers may fail to start although all but one answer.
#
# The client chooses one server at random and gives it the whole of bootstrap_timeout_ms. If that one accepts the
# connection and then says nothing, as a suspended process or a broken network does, the constructor raises
# KafkaTimeoutError at the end of that time (30 s by default) and no other server was tried. A server that refuses the
# connection costs nothing: then the next one is tried.
#
# With one of two servers silent, half of all starts fail. librdkafka connects to all of them, and does not notice.
#
# Needs: python3, java 17, mvn. Takes about two minutes. Exits with 1 if the behaviour has changed.
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
log.dirs=data
PROPERTIES
java -Xmx128m -cp 'jars/*' kafka.tools.StorageTool format --config broker.properties --cluster-id AAAAAAAAAAAAAAAAAAAAAA > /dev/null 2>&1
java -Xmx256m -cp 'jars/*' kafka.Kafka broker.properties > broker.log 2>&1 &
broker=$!

cat > main.py <<'PY'
import logging, os, socket, sys, time
import confluent_kafka, kafka
from kafka.errors import KafkaTimeoutError

logging.disable(logging.CRITICAL)
answers, STARTS, WAIT_S = sys.argv[1], 16, 3.0
silent = socket.create_server(("127.0.0.1", 0))          # the kernel accepts connections, and nobody reads them
both = [f"127.0.0.1:{silent.getsockname()[1]}", answers]

def start(servers):
    began = time.monotonic()
    try:
        kafka.KafkaConsumer(bootstrap_servers=servers, bootstrap_timeout_ms=1_000 * WAIT_S).close()
    except KafkaTimeoutError:
        return "timed out", time.monotonic() - began
    return "started", time.monotonic() - began

until = time.monotonic() + 120
while start([answers])[0] != "started":
    if time.monotonic() > until:
        sys.exit("the broker does not answer")
alone = [start([answers]) for _ in range(STARTS)]
beside = [start(both) for _ in range(STARTS)]
refused = [start(["127.0.0.1:1", answers]) for _ in range(STARTS)]
listed = confluent_kafka.Consumer({"bootstrap.servers": ",".join(both), "group.id": "x", "log_level": 0}).list_topics(timeout=WAIT_S)

def shown(starts):
    failed = [took for what, took in starts if what != "started"]
    return f"{len(failed)} of {len(starts)} failed" + (f", each after {min(failed):.1f} s and more" if failed else "")

print(f"kafka-python {kafka.__version__}, confluent-kafka {confluent_kafka.version()}, Kafka", os.environ["KAFKA"])
print("one server that answers:                      ", shown(alone))
print("beside it one that refuses the connection:    ", shown(refused))
print("beside it one that accepts and is silent:     ", shown(beside))
print("librdkafka with the latter:                    brokers", sorted(listed.brokers))
failed = [took for what, took in beside if what != "started"]
sys.exit(not (failed and min(failed) >= WAIT_S and len(failed) < STARTS and {w for w, _ in alone + refused} == {"started"} and listed.brokers))
PY
KAFKA=$KAFKA venv/bin/python main.py "127.0.0.1:${port[0]}"
