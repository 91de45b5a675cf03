"""Checks of a coordinator from outside: its promises, compared with the records on its own topics."""

from streaming.verify.findings import Finding, Report
from streaming.verify.verifying import verify

__all__ = ["Finding", "Report", "verify"]
