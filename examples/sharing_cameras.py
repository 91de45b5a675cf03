"""Share cameras among workers, and refuse the writes of a worker that was paused while others took its cameras:

    python examples/sharing_cameras.py --bootstrap-servers localhost:9092

Output:

    ana owns gate, yard
    ana writes gate: accepted
    ana writes yard: accepted
    ana is paused
    bob owns gate, yard
    bob writes gate: accepted
    bob writes yard: accepted
    ana resumes
    ana writes gate: refused
    ana writes yard: refused
"""

import argparse
import sqlite3
from collections.abc import Sequence

from streaming.client import GroupMember

CAMERAS = ["gate", "yard"]
PAUSE_MS = 2_000
"""A worker that does not poll for this time loses its cameras, in milliseconds."""

WAIT_S = 60.0


class Store:
    """Keeps the newest picture of each camera, and the highest fencing token that wrote one."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE TABLE pictures (camera TEXT PRIMARY KEY, token INTEGER, picture TEXT)")
        self._database.executemany("INSERT INTO pictures VALUES (?, 0, '')", [(camera,) for camera in CAMERAS])

    def write(self, camera: str, token: int, picture: str) -> bool:
        """Write a picture. Return False if a later owner of the camera has written already."""
        with self._database:
            written = self._database.execute(
                "UPDATE pictures SET token = :token, picture = :picture WHERE camera = :camera AND token <= :token",
                {"camera": camera, "token": token, "picture": picture},
            )
        return written.rowcount == 1


def film(store: Store, name: str, member: GroupMember) -> None:
    """Write a picture of each camera that the member owns, as far as the member knows."""
    for camera in sorted(member.assignment):
        is_written = store.write(camera, member.fencing_token, f"a picture by {name}")
        print(f"{name} writes {camera}: {'accepted' if is_written else 'refused'}")


def work(servers: str, topic_prefix: str) -> None:
    """Run two workers in turn. In production, each is a process, and its loop is `poll` and `film`."""
    store = Store()
    settings = {
        "group_id": "sharing-cameras",
        "bootstrap_servers": servers,
        "topic_prefix": topic_prefix,
        "max_poll_interval_ms": PAUSE_MS,
    }
    with GroupMember(CAMERAS, client_id="ana", **settings) as ana:
        print("ana owns", ", ".join(sorted(ana.wait_for_assignment(WAIT_S))))
        film(store, "ana", ana)
        print("ana is paused")
        with GroupMember(CAMERAS, client_id="bob", **settings) as bob:
            print("bob owns", ", ".join(sorted(bob.wait_for_assignment(WAIT_S))))
            film(store, "bob", bob)
            print("ana resumes")
            film(store, "ana", ana)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the workers."""
    parser = argparse.ArgumentParser(description="Share cameras among workers, with a store that fences.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic-prefix", default="coordinator", help="the prefix of the coordinator's topics")
    options = parser.parse_args(arguments)
    work(options.bootstrap_servers, options.topic_prefix)


if __name__ == "__main__":
    main()
