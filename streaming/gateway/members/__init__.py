"""The members that use a gateway: heartbeats that are held or gathered, and the facts about their topics.

    heartbeat_states      the table of a heartbeat's states; begin here
    heartbeat_scheduler   the heartbeats of a connection, moved by that table
    heartbeat_protocols   the differences between the protocols
    members               the members over whose connection `topic_updates` sends the changes of topics

It imports `exchanges` and the rooms below it.
"""
