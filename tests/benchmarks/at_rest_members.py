"""Members of our client at rest: some members of each of a number of groups, in one process and one thread."""

import argparse
import time
from contextlib import ExitStack
from pathlib import Path

from streaming.client import GroupMember

JOIN_WAIT_S = 120.0
POLL_S = 0.5


def main() -> None:
    """Join, write the ready file when all members have an assignment, and stay until the process is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--groups", type=int, required=True)
    parser.add_argument("--members", type=int, required=True, help="members of each group")
    parser.add_argument("--whole-group", type=int, required=True, help="members of a group in all processes")
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    resources = [f"r{number}" for number in range(options.whole_group)]
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                GroupMember(
                    resources,
                    group_id=f"rest-{group}",
                    bootstrap_servers=options.bootstrap_servers,
                    max_poll_interval_ms=600_000,
                )
            )
            for group in range(options.groups)
            for _ in range(options.members)
        ]
        until_s = time.monotonic() + JOIN_WAIT_S
        while not all(member.assignment for member in members) and time.monotonic() < until_s:
            for member in members:
                member.poll()
            time.sleep(0.05)
        options.ready_file.touch()
        while True:
            for member in members:
                member.poll()
            time.sleep(POLL_S)


if __name__ == "__main__":
    main()
