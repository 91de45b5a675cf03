"""Checks of a coordinator's own topics that need no look inside: what it promised, by what it wrote down."""

from streaming.verify.findings import Finding, Report
from streaming.verify.verifying import verify

__all__ = ["Finding", "Report", "verify"]
