"""One shard, all groups of one partition of the request topic: `shard.Shard.step` is the entry point of the core.

It imports all rooms but `member`.
"""
