"""Retention: which versions stay readable, and the deletion of objects that no version needs."""
