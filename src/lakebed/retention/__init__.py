"""Retention: which versions stay readable, and the deletion of what no version needs."""
