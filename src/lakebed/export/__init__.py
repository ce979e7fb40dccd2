"""Export: a table's rows at one number, sorted, as files for others."""
