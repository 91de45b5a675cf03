"""Spark's session: its settings, its Java process, and the stores that it can use."""
