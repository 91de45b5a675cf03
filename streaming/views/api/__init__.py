"""All groups, folded from the two output topics, and the answers about them as JSON.

It imports `sentences` and the rooms below it.
"""
