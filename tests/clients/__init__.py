"""Kafka clients of other projects, each in its own process, and the scenarios that they play.

A worker program gets its configuration as one JSON object on its command line, writes events as JSON lines to stdout,
and reads commands as words from stdin: `commit`, `pause` (stop polling), `resume`, `close`. Its events:

    {"event": "assigned", "partitions": [["t", 0]]}         added to its partitions
    {"event": "revoked", "partitions": [["t", 0]]}          removed from its partitions; or "lost"
    {"event": "records", "partition": ["t", 0], "offsets": [0, 1]}
    {"event": "committed", "offsets": [["t", 0, 2]]}
    {"event": "error", "error": "..."}                      the worker continues after it

Copiers copy records in transactions. They also read the command `hold`: see `copying_with_confluent`. Their records and
their commits are written when the transaction is committed.
"""
