"""What several commands share: flags, the output of rows, and requests to the coordinator."""
