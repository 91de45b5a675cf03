"""A group that never rests: members join, leave and die, and the output topics tell."""

from streaming.demo.story import run_demo

__all__ = ["run_demo"]
