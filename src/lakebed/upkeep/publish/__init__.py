"""Publication: writes the versions of a table as metadata of Apache Iceberg, so that other engines read its files."""
