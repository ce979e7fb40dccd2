"""Rewrites rows in place: deletes rows and changes value columns, file by file, in one commit."""
