"""Elect one scheduler among several candidates. When it leaves, another candidate takes over:

    python examples/scheduler.py --bootstrap-servers localhost:9092

Output:

    ana is elected
    ana runs job 1
    ana runs job 2
    ana leaves
    bob is elected
    bob runs job 3
    bob runs job 4
    bob leaves
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import count

from streaming.client import GroupMember

ROLE = "scheduler"
"""The only resource of the group. The candidate that owns it is the scheduler."""

JOBS_PER_TERM = 2
WAIT_S = 60.0
JOB_S = 0.1


def serve(name: str, candidate: GroupMember, jobs: Iterator[int]) -> None:
    """Wait until the candidate is elected, run jobs, and leave."""
    candidate.wait_for_assignment(WAIT_S)
    print(f"{name} is elected")
    for _ in range(JOBS_PER_TERM):
        if ROLE not in candidate.poll(JOB_S):
            print(f"{name} is no longer the scheduler")
            return
        print(f"{name} runs job {next(jobs)}")
    print(f"{name} leaves")
    candidate.leave("its term is over")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run two candidates in turn. In production, each is a process."""
    parser = argparse.ArgumentParser(description="Elect one scheduler.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--topic-prefix", default="coordinator", help="the prefix of the coordinator's topics")
    options = parser.parse_args(arguments)
    settings = {
        "group_id": "scheduler",
        "bootstrap_servers": options.bootstrap_servers,
        "topic_prefix": options.topic_prefix,
    }
    jobs = count(1)
    with GroupMember([ROLE], client_id="ana", **settings) as ana:
        ana.wait_for_assignment(WAIT_S)
        with GroupMember([ROLE], client_id="bob", **settings) as bob:
            serve("ana", ana, jobs)
            serve("bob", bob, jobs)


if __name__ == "__main__":
    main()
