"""Tests on three brokers with replication factor 3 and min.insync.replicas 2, and the faults of brokers."""
