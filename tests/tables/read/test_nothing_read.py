"""Reads of nothing: changes of one version, a sample of no rows, a range without keys."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed import AddField, KeyRange, Schema, SetFilter
from lakebed.errors import Code, RejectedError

SCHEMA = Schema({"k": "int64"}, values={"v": "int64"})


@pytest.fixture
def table(tmp_path):
    made = lakebed.create(str(tmp_path / "lake")).create_table("t", SCHEMA)
    made.write(pa.table({"k": range(5000), "v": range(5000)}, SCHEMA.arrow))
    return made


def test_no_changes_have_the_columns_of_their_version(table):
    written = table.version
    table.alter(AddField("later", "string"))
    for since, until, wanted in ((written, written, ["k", "v"]), (0, written, ["k", "v"])):
        assert table.changes(since=since, until=until).read_all().column_names[3:] == wanted
    assert table.changes(since=table.version).read_all().column_names[3:] == ["k", "v", "later"]


def test_no_rows_of_a_filtered_table_are_a_sample(table):
    for filtered in (False, True):
        if filtered:
            table.alter(SetFilter("v >= 0"))
        assert table.sample(0).schema.names == ["k", "v"]
        assert table.sample(0, columns=["v"]).num_rows == 0


def test_a_removal_of_no_key_is_refused(table):
    with pytest.raises(RejectedError, match="no key in the ranges") as caught:
        table.remove(KeyRange(7, 7))
    assert caught.value.code is Code.PROPOSAL_INVALID
