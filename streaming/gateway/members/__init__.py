"""The members that use a gateway: heartbeats that are held or gathered, and the facts about their topics.

It imports `exchanges` and the rooms below it.
"""
