"""Which Lakebed this is. A module of its own, so that the log can write it down without importing the whole package."""

VERSION = "0.0.1"
