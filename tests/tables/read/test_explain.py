"""What a read says of itself, against what is known of small tables."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema
from lakebed.errors import Code, UsageError
from lakebed.read.rows.request import ReadLimits
from tests.raising import raises

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "string"})
ROWS = 1_000


def rows(numbers):
    return pa.table({"k": [f"k{n:05d}" for n in numbers], "n": list(numbers), "v": ["x"] * len(numbers)})


@pytest.fixture
def table(tmp_path):
    """Three files that overlap, of every third number each, in one partition; one by itself in another."""
    instance = lakebed.create(str(tmp_path / "lake"))
    table = instance.create_table("t", SCHEMA, split_points=["m"], settings={"page_rows": 100})
    for first in range(3):
        table.write(rows(range(first, 3 * ROWS, 3)))
    table.write(pa.table({"k": ["z"], "n": [1], "v": ["y"]}))
    return table


def test_of_files_that_overlap_the_filters_leave_one(table):
    found = table.explain("k00301")
    assert (found.partitions, found.files_considered, found.files_out_by_bounds) == (1, 3, 0)
    assert (found.files_out_by_filter, found.files_opened, found.row_groups, found.rows) == (2, 1, 1, 1)
    assert found.pages == 3
    assert 0 < found.size_bytes < 100_000
    assert not found.engine
    assert [step.name for step in found.steps] == ["probe", "plan", "filters", "open", "read"]


def test_lines_for_people_name_one_thing_as_one(table):
    lines = table.explain("k00301").lines()
    assert re.fullmatch(r"read        1 row group, 3 pages, [0-9,]+ bytes", lines[3])
    assert {line[:12].rstrip() for line in lines} >= {"at version", "partitions", "files", "time", "  filters"}
    assert all(line[11] == " " != line[12] for line in lines)


def test_bounds_leave_out_a_file_before_anything_of_it_is_read(table):
    found = table.explain("k00000")
    assert (found.files_considered, found.files_out_by_bounds, found.files_out_by_filter) == (3, 2, 0)
    assert (found.files_opened, found.rows) == (1, 1)
    assert table.explain("zz").files_out_by_bounds == 1


def test_the_filter_of_a_single_file_is_asked_as_well(table):
    table.write(rows([9_000, 9_002]))
    found = table.explain("k09001")
    assert (found.files_considered, found.files_out_by_bounds, found.files_out_by_filter) == (4, 3, 1)
    assert (found.files_opened, found.pages, found.rows) == (0, 0, 0)


def test_a_predicate_and_a_turn_are_explained_as_they_are_read(table):
    assert table.explain(where="k = 'k00301'").files_opened == 1
    found = table.explain(where="k < 'k00030' AND n % 2 = 0", reverse=True, limit=4)
    assert (found.rows, found.files_out_by_bounds) == (4, 0)
    assert found.pages < table.explain(KeyRange("k00000", "k03000")).pages
    assert table.explain("k00301", where="n = 0").rows == 0
    with pytest.raises(UsageError, match="nothing"):
        table.explain(where="nothing = 1")


def test_a_column_less_is_a_page_less(table):
    assert table.explain("k00301", columns=["v"]).pages == 2


def test_a_narrow_range_reads_pages_and_a_wide_one_by_the_engine(table):
    narrow = table.explain(KeyRange("k00300", "k00330"))
    assert (narrow.partitions, narrow.files_opened, narrow.rows, narrow.engine) == (1, 3, 30, False)
    assert narrow.pages == 9
    table.reader.limits = ReadLimits(page_rows=0)
    wide = table.explain(KeyRange("k00300", "k00330"))
    assert (wide.files_opened, wide.rows, wide.engine) == (3, 30, True)
    assert wide.row_groups == 3
    assert 3 <= wide.pages < 20
    assert wide.size_bytes > 0


def test_nothing_asked_is_everything_and_a_limit_ends_early(table):
    assert (table.explain().partitions, table.explain().rows) == (2, 3 * ROWS + 1)
    assert table.explain(limit=5).rows == 5


def test_a_view_explains_its_own_number(table):
    found = table.at(version=2).explain("k00301")
    assert (found.version, found.files_considered, found.files_out_by_filter, found.rows) == (2, 1, 1, 0)
    assert found.steps[0].name == "plan"


def test_what_cannot_be_read_cannot_be_explained(table):
    with pytest.raises(UsageError, match="not both"):
        table.explain("k00301", KeyRange("a"))
    with raises(Code.KEY_LENGTH_MISMATCH):
        table.explain("k00301", "x")
    with pytest.raises(UsageError, match="unknown"):
        table.explain("k00301", columns=["unknown"])
    with pytest.raises(UsageError, match="-1"):
        table.explain(limit=-1)


def test_it_is_text_and_data(table):
    found = table.explain("k00301")
    assert "3 considered: 0 out by bounds, 2 by filter, 1 opened" in str(found)
    assert found.to_dict()["steps"][0] == {"name": "probe", "seconds": found.steps[0].seconds}
    assert found.seconds == pytest.approx(sum(step.seconds for step in found.steps))


@pytest.mark.parametrize(("fields", "left_out"), [(1, 3), (0, 0)])
def test_filters_on_the_first_fields_leave_out_files_for_a_beginning(lake, fields, left_out):
    """Four files overlap, and each user is in one of them; filters on whole keys say nothing of a user."""
    schema = Schema({"user": "string", "at": "int64"}, values={"v": "int64"})
    table = lake.create_table("t", schema, settings={"bloom_fields": fields})
    for file in range(4):
        users = [f"u{n:03d}" for n in range(file, 40, 4) for _ in range(10)]
        table.write(pa.table({"user": users, "at": list(range(10)) * 10, "v": [file] * 100}))
    found = table.explain(KeyRange.prefix("u017"))
    assert (found.files_considered - found.files_out_by_bounds, found.files_out_by_filter) == (4, left_out)
    assert (found.rows, table.explain("u017", 3).files_opened) == (10, 1)
    assert table.scan(KeyRange.prefix("u017")).read_all()["v"].to_pylist() == [1] * 10
    assert table.scan(KeyRange.prefix("u017x")).read_all().num_rows == 0
    assert table.scan(KeyRange.starts_with("u01")).read_all().num_rows == 100
    assert table.explain(KeyRange.starts_with("u017")).files_out_by_filter == 0
