"""The coordinator in memory."""

from streaming.testing.plugin import group_coordinator as group_coordinator
