"""The output topics as lines for people: who joined, why a group rebalanced, who owns what, which offsets moved."""
