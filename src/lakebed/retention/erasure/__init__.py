"""Proof of erasure: where rows of a table are still stored, in which objects, and when these go."""
