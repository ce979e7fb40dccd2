"""Splitting: a partition that grew too large is cut at keys; no data move."""
