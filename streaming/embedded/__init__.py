"""Java programs: the jars that Spark and Kafka need, the class archive for a faster start, and an embedded broker."""

from streaming.embedded.broker import Broker
from streaming.embedded.jars import BROKER, CONNECTORS, TOOLS, Bundle, connector, fetch
from streaming.embedded.java import find_java

__all__ = ["BROKER", "CONNECTORS", "TOOLS", "Broker", "Bundle", "connector", "fetch", "find_java"]
