"""Erasure reports: which objects still contain rows of a table, and when these are deleted."""
