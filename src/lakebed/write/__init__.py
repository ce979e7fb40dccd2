"""Ingest: writes rows as new sorted files in one atomic commit."""
