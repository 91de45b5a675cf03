"""The command `coordinator`: `main` has its subcommands, and each imports its function when it runs.

    services   commands that run until a signal stops them
    admin      rules, policies, checkpoints, sizes, tables
    moves      `coordinator move`, `grow` and `slots`
    groups     `coordinator groups` and `offsets`
    lib        flags, output, requests to the coordinator

A room imports only the rooms below it.
"""
