"""What policies do in a classic group: seats that pass on in the running generation, and rebalances that are held.

    indexing    vacancies and standbys by the properties by which they find each other
    offers      a vacancy is offered to a member, which joins, syncs and has it
    newcomers   NEWCOMER: what becomes of a newcomer in a Stable group
    departures  GONE: what a member that is gone leaves behind
    added       partitions that a new leader finds
    freezing    a freeze is reported, and has a bound for a partition without an owner
    adoption    in a freeze, present members get the partitions that nobody takes
    debts       what happens at the deadlines, and when other policies are set

`seat_parts` has the state. A policy never answers a request later than without it, and never parks one.
"""
