"""Ingest: rows in, one atomic commit of new sorted files out."""
