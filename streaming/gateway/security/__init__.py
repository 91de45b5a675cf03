"""Who a client is, and what the brokers allow it.

It imports `connection` and `protocol`.
"""
