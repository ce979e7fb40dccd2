"""The fixture of tests/tables/retention."""

from tests.tables.retention.conftest import _all_have_summaries  # noqa: F401
