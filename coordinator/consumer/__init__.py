"""Groups of the consumer protocol (KIP-848): the coordinator computes the assignments, and each member reconciles.

    a subscription, the set of members or a topic changes  ->  group epoch + 1
    a server assignor computes the target assignment       ->  assignment epoch = group epoch; every member has a target
    each member gives up the partitions that its target    ->  member epoch = assignment epoch
    lacks, and then takes the free ones

`heartbeat` handles the one request that replaces the joins, syncs, heartbeats and leaves of the classic protocol. Read
`state.consumer_group`, `reconcile` and `checks` first. The room imports `policies` and the rooms below it, never
`classic`.
"""
