"""Java programs: the jars that Spark and Kafka need, the class archive for a faster start, and an embedded broker."""

from streaming.embedded.broker import Broker
from streaming.embedded.cluster import Cluster
from streaming.embedded.jars import BROKER, CONNECTORS, S3, TOOLS, Bundle, connector, fetch
from streaming.embedded.java import find_java
from streaming.embedded.watching import BrokerWatch

__all__ = [
    "BROKER",
    "CONNECTORS",
    "S3",
    "TOOLS",
    "Broker",
    "BrokerWatch",
    "Bundle",
    "Cluster",
    "connector",
    "fetch",
    "find_java",
]
