"""What happened to a table, and whether it is what its log says."""
