"""The fixture of users' tests, also where this distribution is not installed."""

from streaming.testing.plugin import group_coordinator as group_coordinator
