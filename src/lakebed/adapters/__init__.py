"""Rows for other libraries: each in a module of its own, imported where it is used, and none of them required."""
