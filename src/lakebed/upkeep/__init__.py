"""Maintenance of tables: compaction, splits and joins, ingest jobs, repair."""
