"""What an operator asks of groups, apart from how a command or the gateway words it: rules, resets, offsets, lists."""
