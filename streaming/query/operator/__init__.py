"""The stateful operator that Spark calls for each shard, and what a task checks before it has any output.

It imports `spark`.
"""
