"""The history of a table, and the verification of its log and files."""
