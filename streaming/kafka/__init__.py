"""The topics: what they must be like, which rights they need, and how far the request topic is from being read."""
