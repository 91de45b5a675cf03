"""What is stored between two batches: groups, members, policies and moves, and their bytes.

It imports `base`, `messages` and `assignors`.
"""
