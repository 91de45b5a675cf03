"""Kafka clients that others wrote, each as a process of its own, and the scenarios that they act.

A worker program is told what to be as one JSON object on its command line, says what happens to it as JSON lines on
stdout, and obeys words on stdin: `commit`, `pause` (poll no more), `resume`, `close`. What it says:

    {"event": "assigned", "partitions": [["t", 0]]}         added to what it owns
    {"event": "revoked", "partitions": [["t", 0]]}          taken from what it owns; or "lost"
    {"event": "records", "partition": ["t", 0], "offsets": [0, 1]}
    {"event": "committed", "offsets": [["t", 0, 2]]}
    {"event": "error", "error": "..."}                      and it goes on
"""
