"""Compaction: merges the runs of a partition into one, without changing the result of any read."""
