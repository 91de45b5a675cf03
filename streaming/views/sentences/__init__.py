"""What happened to a group, in sentences.

It imports `history` and `state`.
"""
