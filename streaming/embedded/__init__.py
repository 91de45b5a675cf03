"""Everything that starts Java: the jars that Spark and Kafka need, a way to start faster, and a broker of our own."""

from streaming.embedded.broker import Broker
from streaming.embedded.jars import BROKER, CONNECTOR, TOOLS, Bundle, fetch
from streaming.embedded.java import find_java

__all__ = ["BROKER", "CONNECTOR", "TOOLS", "Broker", "Bundle", "fetch", "find_java"]
