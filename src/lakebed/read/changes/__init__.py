"""The change feed: inserted, updated and deleted rows of versions, as a stream (docs/changes.md)."""
