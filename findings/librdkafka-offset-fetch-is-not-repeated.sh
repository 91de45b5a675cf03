#!/usr/bin/env bash
# librdkafka never repeats an OffsetFetch for its assignment that a coordinator has answered with an error for the group.
#
# A coordinator that moves, or that is not ready, answers COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR in place of the
# offsets. Other requests of librdkafka look for the coordinator then and are sent again. The fetch of the offsets of a new
# assignment is not: poll returns one error, which says that it concerns 0 partitions. The member stays in its group, sends
# heartbeats, and reads none of its partitions until they are assigned anew. A fetch with an error for each partition, as
# UNSTABLE_OFFSET_COMMIT, is repeated after half a second.
#
# A proxy in front of a broker writes the error into the first response, and passes everything else on as it is.
#
# Needs: python3, java 17, mvn. Takes about two minutes. Exits with 1 if the behaviour has changed.
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
</dependencies></project>
POM
mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=jars
python3 -m venv venv && venv/bin/pip -q install --no-compile "confluent-kafka==$CONFLUENT"

read -r -a port < <(python3 - <<'PY'
import socket
found = [socket.socket() for _ in range(3)]
for each in found:
    each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in found))
PY
)
cat > broker.properties <<PROPERTIES
node.id=1
process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:${port[0]},CONTROLLER://127.0.0.1:${port[1]}
advertised.listeners=PLAINTEXT://127.0.0.1:${port[2]}
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
import contextlib, socket, struct, sys, threading, time
import confluent_kafka
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

broker, front = int(sys.argv[1]), int(sys.argv[2])
OFFSET_FETCH, WAIT_S, RECORDS = 9, 20, 3
CASES = {  # the error for the whole group, and the one for each partition
    "no error": (0, 0),
    "COORDINATOR_NOT_AVAILABLE for the group": (15, 0),
    "NOT_COORDINATOR for the group": (16, 0),
    "UNSTABLE_OFFSET_COMMIT for the partition": (0, 88),
}
FAILED = "Failed to fetch committed offsets for 0 partition(s): Broker:"
wanted = {}  # by group, the errors of the next response
fetches = {}  # by group, the number of OffsetFetch requests

def compact(text):
    return bytes([len(text) + 1]) + text

def refusal(correlation_id, group, errors):
    """Return an OffsetFetch response of version 8 or 9, with one partition if that has the error."""
    of_group, of_partition = errors
    partition = struct.pack(">iqi", 0, -1, -1) + compact(b"") + struct.pack(">hb", of_partition, 0)
    topics = bytes([2]) + compact(b"t") + bytes([2]) + partition + bytes([0]) if of_partition else bytes([1])
    body = struct.pack(">ibi", correlation_id, 0, 0) + bytes([2]) + compact(group) + topics + struct.pack(">hbb", of_group, 0, 0)
    return struct.pack(">i", len(body)) + body

def frames(source):
    read = source.makefile("rb")
    while len(head := read.read(4)) == 4:
        yield head + read.read(struct.unpack(">i", head)[0])

def connect():
    while True:  # the broker is starting
        try:
            return socket.create_connection(("127.0.0.1", broker))
        except ConnectionRefusedError:
            time.sleep(0.2)

def pass_on(client):
    server = connect()
    asked = {}
    def back():
        with client, contextlib.suppress(OSError):
            for frame in frames(server):
                (correlation_id,) = struct.unpack_from(">i", frame, 4)
                errors = wanted.pop(group := asked.pop(correlation_id, None), (0, 0))
                client.sendall(refusal(correlation_id, group, errors) if any(errors) else frame)
    threading.Thread(target=back, daemon=True).start()
    for frame in frames(client):
        api, version, correlation_id = struct.unpack_from(">hhi", frame, 4)
        if api == OFFSET_FETCH and (group := next((each for each in fetches if compact(each) in frame), None)):
            assert version in (8, 9), version
            fetches[group] += 1
            asked[correlation_id] = group
        server.sendall(frame)
    server.close()

def listen():
    listener = socket.create_server(("127.0.0.1", front))
    while True:
        threading.Thread(target=pass_on, args=(listener.accept()[0],), daemon=True).start()

threading.Thread(target=listen, daemon=True).start()
servers = {"bootstrap.servers": f"127.0.0.1:{front}"}
admin = AdminClient(servers)
admin.create_topics([NewTopic("t", num_partitions=1)], request_timeout=120)["t"].result(120)
producer = Producer(servers)
for number in range(RECORDS):
    producer.produce("t", str(number))
producer.flush(60)
print(f"librdkafka {confluent_kafka.libversion()[0]}: in {WAIT_S} s after its partition was assigned, a member has")
seen = {}
for number, (name, errors) in enumerate(CASES.items()):
    group = f"group-{number}".encode()
    wanted[group], fetches[group] = errors, 0
    since = []
    config = {"group.id": group.decode(), "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**servers, **config})
    consumer.subscribe(["t"], on_assign=lambda *_: since.append(time.monotonic()))
    read, raised = 0, []
    while not since or time.monotonic() < since[0] + WAIT_S:
        message = consumer.poll(0.5)
        if message is not None and message.error():
            raised.append(message.error().str().replace(f' in group "{group.decode()}"', ""))
        elif message is not None:
            read += 1
    seen[name] = read, fetches[group], raised
    print(f"  after {name}: records read: {read} of {RECORDS}, fetches of offsets: {fetches[group]}, errors raised: {raised}")
    del fetches[group]
    consumer.close()
same = seen == {
    "no error": (RECORDS, 1, []),
    "COORDINATOR_NOT_AVAILABLE for the group": (0, 1, [f"{FAILED} Coordinator not available"]),
    "NOT_COORDINATOR for the group": (0, 1, [f"{FAILED} Not coordinator"]),
    "UNSTABLE_OFFSET_COMMIT for the partition": (RECORDS, 2, []),
}
sys.exit(not same)
PY
venv/bin/python main.py "${port[0]}" "${port[2]}" 2> errors || { cat errors >&2; exit 1; }
