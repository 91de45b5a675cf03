"""The output topics as lines for people: who joined, why a group rebalanced, who owns what, which offsets moved."""

from streaming.watch.reader import follow
from streaming.watch.words import Gap, Line, Tombstone, Unreadable, to_line

__all__ = ["Gap", "Line", "Tombstone", "Unreadable", "follow", "to_line"]
