"""Garbage collection: objects that no reference needs any more are deleted, in two logged steps."""
