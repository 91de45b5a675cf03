"""The parts of one client's connection: its queue of requests, its flow control, its tasks and its socket.

It imports `protocol`.
"""
