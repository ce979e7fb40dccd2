"""Every handle of a table has the same rows and errors: of the library and of a service, of all rows and of a part."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import Code
from lakebed.model.policies import Policy
from lakebed.table.restricted_table import RestrictedTable
from lakebed.testing.table_handles import ROWS, SCHEMA, TableHandleConformance
from lakebed.upkeep.index_feed import feed_index
from tests.processes.web.serving import serving
from tests.raising import raises

HIDDEN = pa.table(
    {"place": ["a", "bb", "z"], "day": [1, 1, 1], "hour": [8, 1, 1], "x": [-1.0, -2.0, -3.0]}, schema=SCHEMA.arrow
)
"""Rows between those of the suite, and beside them."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    made = lakebed.create(str(tmp_path_factory.mktemp("lake")))
    table, mixed = made.create_table("t", SCHEMA), made.create_table("mixed", SCHEMA)
    for part in (ROWS.slice(0, 2), ROWS.slice(2)):
        table.write(part)
    mixed.write(pa.concat_tables([ROWS, HIDDEN]))
    for name in ("t", "mixed"):
        feed_index(made.create_index(f"{name}_by_x", table=name, on=["x"]), made[name])
    return made


class TestTable(TableHandleConformance):
    @pytest.fixture
    def handle(self, lake):
        return lake["t"]


class TestSnapshot(TableHandleConformance):
    @pytest.fixture
    def handle(self, lake):
        return lake["t"].snapshot()


class TestRestrictedTable(TableHandleConformance):
    @pytest.fixture
    def handle(self, lake):
        return RestrictedTable(lake["mixed"], Policy(wheres=("x IS NULL OR x > 0",)))


class TestRestrictedSnapshot(TableHandleConformance):
    @pytest.fixture
    def handle(self, lake):
        return RestrictedTable(lake["mixed"], Policy(wheres=("x IS NULL OR x > 0",))).snapshot()


@pytest.fixture(scope="module")
def connected(lake):
    with serving(lake) as url, lakebed.connect(url) as made:
        yield made


class TestRemoteTable(TableHandleConformance):
    @pytest.fixture
    def handle(self, connected):
        return connected["t"]


class TestRemoteSnapshot(TableHandleConformance):
    @pytest.fixture
    def handle(self, connected):
        return connected["t"].snapshot()


def test_no_rows_are_found_by_a_field_that_a_role_does_not_see(lake):
    """Their number alone would tell what a mask hides; a hidden field is none."""
    masked = RestrictedTable(lake["mixed"], Policy(masks=(("x", "0.0"),)))
    for read in (masked.get, masked.scan, masked.count):
        with raises(Code.PERMISSION_MISSING):
            read(by={"x": 1.5})
    with raises(Code.COLUMN_UNKNOWN):
        RestrictedTable(lake["mixed"], Policy(hidden=frozenset({"x"}))).get(by={"x": 1.5})
