"""The command line: a module a noun; each parses, makes one library call, and renders what it returned."""

from lakebed.cli.run import main

__all__ = ["main"]
