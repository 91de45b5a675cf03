"""The ports of a gateway, and the handling of each request of a connection.

It imports all rooms of the gateway.
"""
