"""A member's side of the protocol, as the Python client runs it.

It imports `base`, `messages` and `assignors`.
"""
