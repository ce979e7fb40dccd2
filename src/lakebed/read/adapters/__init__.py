"""Rows for other libraries: each in a module of its own, imported when it is used; none of them is required."""
