"""How a submitted scan is divided: every row in one part, and a part for each core where partitions allow it."""

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.clock import new_id
from lakebed.model.keys import ALL_KEYS
from lakebed.upkeep.export.query_result import ScanQuery, plan_query


@pytest.fixture
def table():
    lake = lakebed.create(f"memory://{new_id()}")
    made = lake.create_table("t", Schema({"k": "int64"}), split_points=[10, 20, 30])
    made.write(pa.table({"k": range(40)}))
    return made


@pytest.mark.parametrize(("cores", "parts"), [(1, 1), (2, 2), (4, 4), (8, 4)])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_small_scan_has_a_part_for_each_core_if_there_are_as_many_partitions(table, cores, parts, reverse):
    planned = plan_query(table, table.snapshot(), ScanQuery((ALL_KEYS,), reverse=reverse), cores)
    assert len(planned.parts) == parts
    in_key_order = planned.parts[::-1] if reverse else planned.parts
    ranges = [cell.keys for part in in_key_order for cell in part]
    assert ranges == [table.state().partitions.range_at(position) for position in range(4)]
    assert {sum(cell.rows for cell in part) for part in planned.parts} == {40 // parts}


def test_only_partitions_that_a_predicate_leaves_are_counted(table):
    planned = plan_query(table, table.snapshot(), ScanQuery((ALL_KEYS,), where="k < 20"), 4)
    assert len(planned.parts) == 2


def test_a_scan_with_a_limit_is_one_part(table):
    assert len(plan_query(table, table.snapshot(), ScanQuery((ALL_KEYS,), limit=3), 4).parts) == 1
