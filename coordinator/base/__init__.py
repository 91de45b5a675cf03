"""The ground of the core: errors, limits, settings, access rules and policies as data.

It imports no other room.
"""
