"""Compaction: the runs of a leaf become one; no answer changes."""
