"""Benchmarks: each prints its own table, with its peers in the same run. Ratios mean something, times little."""
