"""Rows out: by key, by range, by condition, merged and counted."""
