"""Groups that move between coordinators (moving.md).

kept_moves    the moves that a shard keeps, and who has custody of a name
carrying      the state of a name as bytes, in parts
resuming      times and addresses after a move
soundness     the check of a state that another coordinator has sent
source        the side that releases a group
target        the side that adopts it
slot_source   the side that releases slots
slot_target   the side that adopts them
importing     groups of an export, which no coordinator has released
"""
