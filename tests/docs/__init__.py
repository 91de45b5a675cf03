"""The documents: every link, file, command, setting and reference that they name exists."""
