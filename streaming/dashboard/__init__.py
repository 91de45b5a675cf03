"""The dashboard: groups, their members and their history in a browser, live. It reads the topics and writes nothing."""

from streaming.dashboard.live import LiveViews
from streaming.dashboard.server import Dashboard

__all__ = ["Dashboard", "LiveViews"]
