"""Kafka's group coordinator as a pure state machine: requests and times in, responses, records and events out.

The package uses no clock, randomness, file, socket, thread or log. It imports only the standard library and msgspec. So
it can be replayed, simulated and moved to another engine. `shard.Shard.step` is its entry point; `requests`, `outputs`,
`config` and `errors` have the types of its interface. Read `phases`, `answers` and `kinds` first: they are the
protocol's tables, and the code runs them.
"""
