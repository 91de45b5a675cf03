"""A broker on a host: a process that starts it, writes its address, and stops it when its input ends.

python -m tests.hosts.broker FOLDER ADDRESS
"""

import sys
from pathlib import Path

from streaming.embedded import Broker
from streaming.embedded.broker import Node, new_cluster_id

PORT, CONTROLLER_PORT = 9092, 9093
"""A host's ports are its own: nothing else has them."""

if __name__ == "__main__":
    folder, address = sys.argv[1:]
    voters = f"1@{address}:{CONTROLLER_PORT}"
    with Broker(Path(folder), node=Node(1, address, PORT, CONTROLLER_PORT, voters, new_cluster_id())) as broker:
        print(broker.bootstrap_servers, flush=True)
        sys.stdin.read()
