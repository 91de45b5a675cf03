"""Commands for rules, policies, checkpoints, sizes and tables.

It imports `moves` and the rooms below it.
"""
