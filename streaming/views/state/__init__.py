"""One group, as its records describe it now."""
