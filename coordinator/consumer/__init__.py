"""Groups of the consumer protocol (KIP-848): a group epoch, a plan by the coordinator, and members that follow it.

    a subscription, the members or the topics change   ->  group epoch + 1
    a plan is made for it                              ->  assignment epoch = group epoch; every member has a target
    each member gives up what its target lacks, then   ->  member epoch = assignment epoch
    takes what is free

`heartbeats` handles the one request that stands for the classic protocol's joins, syncs, heartbeats and leaves. Read
`group`, `reconciling` and `checks` first.
"""
