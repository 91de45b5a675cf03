"""Commands that run until a signal stops them, and the preparation before the first start.

It imports `admin` and the rooms below it.
"""
