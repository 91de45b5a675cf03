"""The command `coordinator`."""
