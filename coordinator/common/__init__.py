"""What groups of both protocols share: the row of a handler, timers, offsets, transactions and rights.

It imports `state` and the rooms below it.
"""
