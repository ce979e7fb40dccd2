"""Merges rows with equal keys in sorted streams, by the merge modes."""
