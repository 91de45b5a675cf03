"""A checkpoint that an earlier version wrote, and topics that match it.

The version with codec 3 wrote `checkpoints/codec-3.zip` when it ran as a service. The checkpoint holds seven groups.
Six groups have one member and a commit. One group waits for its first member to join again, and the join of its second
member is parked. `kept.json` has for each group its member ids, its generation, its committed offset and its version.
"""

import json
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from streaming.config.settings import Settings
from streaming.kafka import topics

CODEC_3 = Path(__file__).with_name("checkpoints") / "codec-3.zip"


def unpack(folder: Path) -> dict[str, dict[str, Any]]:
    """Unpack the checkpoint into a folder, and return its contents by group."""
    with zipfile.ZipFile(CODEC_3) as archive:
        archive.extractall(folder)
    kept = folder / "kept.json"
    told: dict[str, dict[str, Any]] = json.loads(kept.read_text())
    kept.unlink()
    return told


def adopt(settings: Settings) -> None:
    """Make topics with as many requests as the checkpoint's newest plan has, and put their ids into the checkpoint."""
    topics.ensure(settings)
    ids = topics.topic_ids(settings)
    identity = Path(settings.checkpoint) / "identity.json"
    told = json.loads(identity.read_text())
    told["topic_ids"] = {name: ids[name] for name in told["topic_ids"]}
    identity.write_text(json.dumps(told))
    plans = Path(settings.checkpoint) / "query" / "offsets"
    newest = max(plans.iterdir(), key=lambda file: int(file.name))
    (ends,) = json.loads(newest.read_text().splitlines()[2]).values()
    with closing(KafkaProducer(**settings.kafka_client_arguments())) as producer:
        for partition, end in ends.items():
            for _ in range(end):
                producer.send(settings.requests_topic, b'{"kind":"wake"}', partition=int(partition))
