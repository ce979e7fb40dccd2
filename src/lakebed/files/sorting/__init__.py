"""Sorted runs: sorts, spills and merges rows in memory bounded by a setting."""
