"""A stateless Spark query from one topic to another, for comparison, with the coordinator's session and options.

    python -m tests.benchmarks.stateless --bootstrap-servers B --topic-prefix P --checkpoint C --ready-file F

It writes the value of each record of P.requests to P.replies, with the same key, until SIGTERM.
"""

import argparse
import signal
from pathlib import Path
from threading import Event

from streaming.config.settings import Settings
from streaming.kafka import topics
from streaming.query.spark.session import open_session


def main() -> None:
    """Run the query until a signal ends it. Write the ready file when the query is started."""
    parser = argparse.ArgumentParser()
    for flag in ("--bootstrap-servers", "--topic-prefix", "--checkpoint"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    flags = vars(parser.parse_args())
    ready_file = flags.pop("ready_file")
    settings = Settings.load(replication_factor=1, **flags)
    stopping = Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: stopping.set())
    topics.ensure(settings)
    query = (
        open_session(settings)
        .readStream.format("kafka")
        .options(**settings.kafka_source_options())
        .option("subscribe", settings.requests_topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("kafka.fetch.max.wait.ms", "1")
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .options(**settings.kafka_sink_options())
        .option("topic", settings.replies_topic)
        .option("checkpointLocation", settings.checkpoint)
        .start()
    )
    ready_file.write_text("ready\n")
    while query.isActive and not stopping.wait(0.2):
        pass
    query.stop()


if __name__ == "__main__":
    main()
