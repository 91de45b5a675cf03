"""Simulations of groups, members, a faulty log, crashes and clock jumps, each driven by one seed. Checkers watch them.

    faults      the possible faults and their highest rates; each simulation draws some of them
    worlds      the draws of a simulation: its settings, its groups and the protocols of their members
    actors      the clients of the classic protocol, and strangers that follow no rules
    consumers   the clients of the consumer protocol
    producers   the clients that commit offsets inside transactions, and their gateways
    transactions  the transactions topic, the brokers that end transactions, and the driver that reports their ends
    cluster     the topics that change, and what gateways tell groups of them
    simulation  the network, the log and the clocks; ends with a calm period, in which every member must join
    rest        when a group is at rest, and how soon it has to be Stable
    script      the records of the log and the batches that read them: the whole input of the coordinator
    judge       replays a script through the coordinator, with kills and restarts, and checks every promise
    holding     checks that the answers that gateways hold stay true
    audits      replays the same script in other ways that must give the same outputs
    shrink      shortens a script that breaks a promise
    runs        runs many simulations, one after another or in parallel

A simulation runs against a judge and produces a script. The script alone brings a new judge to the same end.
"""
