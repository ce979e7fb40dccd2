"""What versions of a table changed: rows that came, were updated or went, as a stream (docs/changes.md)."""
