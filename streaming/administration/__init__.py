"""The administration of groups for commands and the gateway: rules, resets, committed offsets, lists."""
