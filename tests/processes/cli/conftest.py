"""The fixtures of tests/tables/cli."""

from tests.tables.cli.conftest import cli, parquet, prepared, schema_file, table, url  # noqa: F401
