"""The checkpoint: its identity, its contents, and what a start finds in its folder.

It imports `operator` and `spark`.
"""
