"""A member's side of both protocols, as the Python client runs it: no clock, no thread, no network.

    member               the state machine of the classic protocol, and what it does after an error
    requests             makes its requests
    pending_requests     requests without a response, sent again
    owned_partitions     the partitions that it owns, and the calls of its listener
    effects              what only the member's owner can carry out
    consumer_member      the state machine of the consumer protocol (KIP-848), and what it does after an error
    consumer_config      its settings, its subscription, and its assignment
    consumer_heartbeats  the fields of each heartbeat, and the time at which it is due
    consumer_topics      the requests with changes of topics
    consumer_offsets     commits and fetches under its epoch

It imports `base`, `messages` and `assignors`.
"""
