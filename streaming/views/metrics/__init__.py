"""Prometheus metrics of groups.

It imports `api` and the rooms below it.
"""
