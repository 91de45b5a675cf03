"""The Structured Streaming query: the operator, its checkpoint, and what watches over both while it runs."""
