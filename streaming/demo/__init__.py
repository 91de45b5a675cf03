"""A demo: members of a group join, leave and crash all the time, and the output topics show it."""

from streaming.demo.scenario import run_demo

__all__ = ["run_demo"]
