"""Share cameras among workers with asyncio. Start it in several terminals, against a running coordinator:

    python examples/asyncio_worker.py --bootstrap-servers localhost:9092

Output of one worker that is alone:

    start: gate, roof, yard
    watching gate, roof, yard
    watching gate, roof, yard
    watching gate, roof, yard
    stop: gate, roof, yard
"""

import argparse
import asyncio
from collections.abc import Sequence

from streaming.client import AsyncGroupMember

CAMERAS = ["gate", "roof", "yard"]
ROUNDS = 3
ROUND_S = 0.2


async def start(cameras: frozenset[str]) -> None:
    """Open new cameras."""
    print("start:", ", ".join(sorted(cameras)))


async def stop(cameras: frozenset[str]) -> None:
    """Close cameras that another worker takes over."""
    print("stop:", ", ".join(sorted(cameras)))


async def work(servers: str, topic_prefix: str) -> None:
    """Watch the cameras that this worker owns, for some rounds."""
    async with AsyncGroupMember(
        CAMERAS,
        group_id="cameras",
        bootstrap_servers=servers,
        topic_prefix=topic_prefix,
        on_assigned=start,
        on_revoked=stop,
    ) as member:
        await member.wait_for_assignment()
        for _ in range(ROUNDS):
            cameras = await member.poll(ROUND_S)
            print("watching", ", ".join(sorted(cameras)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one worker."""
    parser = argparse.ArgumentParser(description="Share cameras among workers.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic-prefix", default="coordinator", help="the prefix of the coordinator's topics")
    options = parser.parse_args(arguments)
    asyncio.run(work(options.bootstrap_servers, options.topic_prefix))


if __name__ == "__main__":
    main()
