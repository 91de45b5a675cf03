"""Groups of the classic protocol: members join, sync, send heartbeats and leave, and the leader assigns.

    decisions         the protocol's tables: the response in each phase
    checks            what a request must pass before its handler is called
    join, leave       the handlers of members' requests
    rebalance         a join round, from its first join to its end
    deadlines         sessions that expire, rounds that end
    offers            a vacancy is offered to a member, which joins, syncs and has it
    newcomers         NEWCOMER: what becomes of a newcomer in a Stable group
    departures        LEAVE_OUTCOMES: what a member that is gone leaves behind
    policy_deadlines  what happens at the deadlines of policies, and when other policies are set
    admin, describe   the requests of operators

A policy never answers a request later than without it, and never parks one. The room imports `policies` and the rooms
below it.
"""
