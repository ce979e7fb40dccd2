"""Export: a table's rows at one version, sorted, as files for others."""
