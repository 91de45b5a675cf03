"""Kafka's group coordinator as a pure state machine: requests and times in, responses, records and events out.

    shard              one shard; `shard.shard.Shard.step` is the entry point
    moves              groups that move between coordinators
    classic, consumer  the handlers of the two protocols
    policies           what policies say about a group
    common             what both protocols share
    state, member      what is stored between two batches; a member's side of the protocol
    messages           requests, responses, events and records
    assignors          Kafka's assignors
    base               errors, limits, settings

A room imports only the rooms below it. The package uses no clock, randomness, file, socket, thread or log. It imports
only the standard library and msgspec. So it can be replayed, simulated and moved to another engine. Read `base.states`,
`classic.decisions` and `shard.handlers` first: they are the protocol's tables, and the code runs them.
"""
