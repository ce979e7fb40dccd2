"""Export: writes a table's rows at one version, sorted, as files for other programs."""
