"""Benchmarks: each prints its own table, with its peers in the same run. Compare ratios rather than times."""
