"""The fixtures of tests/tables/web."""

from tests.tables.web.conftest import browser, stations  # noqa: F401
