"""How long processes wait for brokers: one table, with the reasons. docs/settings.md shows it.

A broker that is killed, frozen or cut off loses its leaders after its session (`broker.session.timeout.ms`, 9 s by
default). Until then nobody can write to their partitions. A client that still waits for the former leader after that
time makes it longer, so every request has a timeout that is shorter than the brokers' session. A timeout costs little:
the request is sent again, and the brokers handle a repeated write of one producer once.
"""

REQUEST_TIMEOUT_MS = 5_000
"""The longest wait for the response to one request, of the query's source and sink, and of all clients of librdkafka.
The clients' own defaults are 30 to 60 s, which is how long a frozen broker stopped all groups."""

CONNECT_TIMEOUT_MS = 5_000
"""The longest wait until a connection is open. Packets to a broker may be lost without an error."""

RECONNECT_BACKOFF_MAX_MS = 1_000
"""The longest pause between two attempts to connect to a broker, as in Kafka's own clients. librdkafka's default of
10 s, and kafka-python's of 30 s, would be added to the time that a broker takes to come back."""

ATTEMPT_WAIT_S = 3.0
"""The longest wait for one of several brokers, both for its connection and for its answer. Then the next one is asked,
or the leader is looked for again, which may have moved. A broker answers from memory, so this is plenty."""

RETRY_WAIT_S = 0.1
"""The pause before brokers are asked again."""

ANSWER_WAIT_S = 15.0
"""The longest wait for an answer of any broker: enough for several attempts."""

REPEATED_ANSWER_WAIT_S = 5.0
"""The same for a request that is repeated every few seconds."""

LEADERS_WAIT_S = 30.0
"""The longest wait until partitions have a leader that answers. If a broker is down, the others need nine seconds by
default to find out, and some more to choose. A new topic has leaders after a moment."""

KNOWN_WAIT_S = 30.0
"""The longest wait until a topic that was just created is known to a broker that is asked about it."""

SOURCE_TIMEOUT_MS = 5_000
"""The longest wait of the query's source for the ends of the request topic. Kafka's admin client looks the leaders up
once for each such wait: if one is frozen before the client is connected to it, the client waits for that leader to the
end of this time, although another one leads by then. So the time is short, and the source tries again."""

SOURCE_PAUSE_MS = 500
"""The pause between two such tries. Spark's default is 10 s."""

TASK_TRIES = 4
"""How often a task of the query is tried, as on a cluster by default. A local master has one try by default."""

BROKER_WAIT_PARTS = 3
"""A write or a read of one task may take this part of `broker_wait_ms`: it is tried again after that."""
