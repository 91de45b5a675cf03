"""Groups that move between coordinators (moving.md).

    custody      the moves that a shard keeps, and who has custody of a name
    transfer     the state of a name as bytes, in parts
    resume       times and addresses after a move
    validate     the check of a state that another coordinator has sent
    drain        a release that waits for open transactions
    source       the side that releases a group
    target       the side that adopts it
    slot_source  the side that releases slots
    slot_target  the side that adopts them
    imports      groups of an export, which no coordinator has released
    peers        records of other coordinators

It imports all rooms but `shard` and `member`.
"""
