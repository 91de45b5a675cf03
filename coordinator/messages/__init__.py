"""Requests that come in, and responses, events and records that go out, each as the JSON object of a record.

It imports `base`.
"""
