"""The fixtures of tests/tables/web."""

from tests.tables.web.conftest import browser, instance, stations  # noqa: F401
