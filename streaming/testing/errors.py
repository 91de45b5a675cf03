"""The error of a test that cannot end."""


class NotSettled(AssertionError):
    """A wait went on beyond its bound. Time in memory has no end, so that the test would hang."""
