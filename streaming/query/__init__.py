"""The Structured Streaming query, and what surrounds it in the driver.

    health         health checks and metrics
    coordinator    the query's start and stop
    standby        a driver that waits for the lease (`lease`)
    dataframe      the query as one DataFrame: source, operator, sink
    watchers       the threads beside the query
    checkpoint     its identity, its contents, and what a start finds in its folder
    operator       the stateful operator, and what a task checks
    spark          the session, its settings, and the stores that it can use

A room imports only the rooms below it.
"""
