"""Requests that go to a broker, and the broker's responses.

It imports `security` and the rooms below it.
"""
