"""Java programs: the jars that Spark and Kafka need, the class archive for a faster start, and an embedded broker."""

from streaming.embedded.broker import Broker
from streaming.embedded.jars import BROKER, CONNECTOR, TOOLS, Bundle, fetch
from streaming.embedded.java import find_java

__all__ = ["BROKER", "CONNECTOR", "TOOLS", "Broker", "Bundle", "fetch", "find_java"]
