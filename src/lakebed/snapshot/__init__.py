"""A table at one version: its reads, and how a process follows the log for them."""
