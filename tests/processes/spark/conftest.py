"""The fixture of tests/tables/spark."""

from tests.tables.spark.conftest import _all_cores  # noqa: F401
