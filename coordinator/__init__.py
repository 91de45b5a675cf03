"""Kafka's group coordinator as a pure state machine: requests and times in, responses, records and events out.

No clock, chance, file, socket, thread or log; the standard library and msgspec. So it can be replayed, simulated and
moved to another engine. `shard.Shard.step` is the one way in; `requests`, `outputs`, `config` and `errors` are what its
callers talk about. Read `phases`, `answers` and `kinds` first: they are the protocol's tables, and they run.
"""
