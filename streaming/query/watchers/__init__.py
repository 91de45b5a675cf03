"""The threads beside the query: they wake it, settle transactions, and watch topics, the log and the store.

It imports `checkpoint` and the rooms below it.
"""
