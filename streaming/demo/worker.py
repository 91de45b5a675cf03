"""One member of the demo's group, as a process that consumes orders and commits until it is stopped.

python -m streaming.demo.worker --bootstrap-servers HOST:PORT --name ana
"""

import argparse
import logging
import signal
import threading

from streaming.client import GroupConsumer
from streaming.config.settings import Settings

GROUP = "demo"
TOPIC = "demo.orders"
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 2_000
COMMIT_EVERY_S = 1.0
POLL_MS = 500


def work(settings: Settings, name: str, leaving: threading.Event) -> None:
    """Run as a member until `leaving` is set."""
    consumer = GroupConsumer(
        TOPIC,
        **settings.kafka_client_arguments(),
        topic_prefix=settings.topic_prefix,
        group_id=GROUP,
        client_id=name,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=int(COMMIT_EVERY_S * 1_000),
    )
    try:
        while not leaving.is_set():
            consumer.poll(POLL_MS)  # reading an order is all the work; auto commit commits it
    finally:
        consumer.close("shift is over")


def main() -> None:
    """Run the program that the module's docstring describes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic-prefix", default=None)
    parser.add_argument("--name", required=True)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: leaving.set())
    settings = Settings.load(bootstrap_servers=asked.bootstrap_servers, topic_prefix=asked.topic_prefix)
    work(settings, asked.name, leaving)


if __name__ == "__main__":
    main()
