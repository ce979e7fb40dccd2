"""A table at one version: its reads, and following the log for the latest version."""
