"""The coordinator's topics: their layout, the rights they need, one reader, and the end of the request topic."""
