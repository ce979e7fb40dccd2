"""Sorted runs: rows are sorted, spilled and merged in memory that follows a setting."""
