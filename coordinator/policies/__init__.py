"""What policies say about a group: the entry that is in force, unstable clients, and the description of a hold.

It imports `common` and the rooms below it.
"""
