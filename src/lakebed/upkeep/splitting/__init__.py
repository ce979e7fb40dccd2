"""Splitting: cuts partitions that are too large at keys; no data is moved."""
