"""The Structured Streaming query: the operator, its checkpoint, and the modules that monitor both while the query
runs."""
