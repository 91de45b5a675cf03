"""Requests to the coordinator and its responses, for all connections of a gateway.

It imports `relay` and the rooms below it.
"""
