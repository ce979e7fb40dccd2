"""Compaction: the runs of a partition become one; no answer changes."""
