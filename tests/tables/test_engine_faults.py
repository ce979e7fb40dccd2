"""Each fault on docs/engine-faults.md is one of the engine alone: a test that fails says that the fault is mended.

Remove then what Lakebed does about it, the line of the page, and the test.
"""

from __future__ import annotations

import ast
import datetime as dt
import re
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionConfig, SessionContext

from lakebed.engine import workarounds

PAGE = Path(__file__).parents[2] / "docs" / "engine-faults.md"
TESTED_BELOW = {
    "pruning_by_a_cast", "member_of_a_null_struct", "times_of_different_units", "ignored_clauses",
    "least_of_infinities", "integers_that_wrap", "required_column_of_an_outer_join", "nan_keys_across_batches",
    "condition_of_a_narrowed_join", "nulls_of_several_equalities",
}  # fmt: skip
TESTED_ELSEWHERE = {"columns_of_one_name"}
"""Faults that only show in statements of a certain plan: the tests of their module have them."""

NOON = dt.datetime(2026, 1, 1, 12)  # noqa: DTZ001 - a local time
ROWS = pa.table(
    {
        "n": pa.array([0, 1, 2]),
        "p": pa.array([Decimal("1.00"), Decimal("1.50"), Decimal("2.00")], pa.decimal128(10, 2)),
        "k": pa.array([5, 300, None], pa.int32()),
        "d": pa.array([dt.date(2025, 12, 31), dt.date(2026, 1, 1), dt.date(2026, 1, 2)]),
        "at": pa.array([NOON.replace(hour=0), NOON, NOON + dt.timedelta(hours=13)], pa.timestamp("us")),
        "b": pa.array([True, False, None]),
        "ms": pa.array([NOON.replace(hour=0), NOON, NOON + dt.timedelta(hours=13)], pa.timestamp("ms")),
        "ns": pa.array([NOON.replace(hour=0), NOON, None], pa.timestamp("ns")),
        "clock": pa.array([0, 5_000_000, None], pa.time64("us")),
        "f": pa.array([0.0, -0.0, 7.0]),
    }
)


def found(where: str, folder: Path | None = None) -> list[int]:
    """Return the rows that pass in the engine alone, in memory or in a Parquet file."""
    context = SessionContext(SessionConfig().set("datafusion.execution.time_zone", "UTC"))
    if folder is None:
        context.register_record_batches("t", [ROWS.to_batches()])
    else:
        pq.write_table(ROWS, folder / "t.parquet")
        context.register_parquet("t", str(folder / "t.parquet"))
    return context.sql(f"SELECT n FROM t WHERE {where} ORDER BY n").to_pydict()["n"]


WRONG = {
    "narrowing_cast": [
        ("CAST(p AS BIGINT) = 1", [0], [0, 1]),
        ("CAST(p AS DECIMAL(10, 0)) = CAST('2' AS DECIMAL(1, 0))", [2], [1, 2]),
        ("TRY_CAST(k AS TINYINT) > 4", [0, 1], [0]),
    ],
    "cast_to_a_zone": [("at AT TIME ZONE 'Europe/Berlin' = TIMESTAMP '2026-01-01T12:00:00'", [], [1])],
    "distinct_before_and": [("b IS DISTINCT FROM TRUE AND n < 1", [2], [])],
    "lists_of_one_operand": [
        ("k IN (5, 300) AND k NOT IN (300, NULL)", [0], []),
        ("NOT (k IN (1, 2, 3, 4) AND k IN (6, 7, 8, 9))", [0, 1, 2], [0, 1]),
        ("NOT ((k = 1 OR k = 2) AND (k = 3 OR k = 4))", [0, 1, 2], [0, 1]),
    ],
    "date_part_beyond_the_times": [("NOT (date_part('year', ns) < 300)", [], [0, 1])],
    "time_cut_to_a_unit": [("ms >= TIMESTAMP '2026-01-01 12:00:00.0005'", [1, 2], [2])],
    "zeros_in_a_list": [
        ("f IN (0.0, 1, 2, 3)", [0], [0, 1]),
        ("f = 0.0 OR f = 1 OR f = 2 OR f = 3", [0], [0, 1]),
        ("CASE f WHEN 0.0 THEN true END", [0], [0, 1]),
        ("nullif(f, 0.0) IS NULL", [0], [0, 1]),
        ("abs(-f) IN (-0.0, 1, 2, 3)", [], [0, 1]),
    ],
    "constant_on_the_left": [("d <= DATE '2026-01-01' AND DATE '2026-01-01' > d", [0, 1], [0])],
    "constant_in_subquery": [("3 NOT IN (SELECT k FROM t)", [0, 1, 2], [])],
    "correlated_in_subquery": [("3 NOT IN (SELECT x.k FROM t x WHERE x.n > t.n)", [0, 1, 2], [2])],
    "in_subquery_of_an_expression": [
        ("k NOT IN (SELECT k FROM t) OR n = 0", [0, 2], [0]),
        ("(k IN (SELECT k FROM t)) IS NULL", [], [2]),
    ],
    "comparison_with_a_subquery": [("n = ANY (SELECT n FROM t WHERE n < 1)", [0, 1, 2], [0])],
}
"""For each fault: predicates, the rows that the engine finds, and those that pass."""


@pytest.mark.parametrize(
    ("fault", "where", "wrong", "right"), [(name, *one) for name, ones in WRONG.items() for one in ones]
)
def test_the_engine_still_has_this_fault(fault, where, wrong, right):
    assert wrong != right
    assert found(where) == wrong, f"{fault} is mended, or has changed: see docs/engine-faults.md"


def test_the_engine_still_has_the_fault_pruning_by_a_cast(tmp_path):
    where = "CAST(at AS TIME) = TIME '12:00:00'"
    assert found(where) == [1]
    assert found(where, tmp_path) == [], "pruning_by_a_cast is mended: see docs/engine-faults.md"


def test_the_engine_still_has_the_fault_member_of_a_null_struct():
    required = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    structs = pa.StructArray.from_arrays([pa.array([7, 8])], fields=list(required), mask=pa.array([False, True]))
    context = SessionContext()
    context.register_record_batches("t", [[pa.record_batch({"s": structs})]])
    found = context.sql("SELECT s['x'] AS x FROM t").to_pydict()["x"]
    assert found == [7, 8], "member_of_a_null_struct is mended: see docs/engine-faults.md"


IGNORED = [
    "SELECT n FROM t PREWHERE n > 1",
    "SELECT n FROM t TABLESAMPLE (1)",
    "SELECT n FROM t SAMPLE (1)",
    "SELECT n FROM t PARTITION (p0)",
    "SELECT n FROM t CONNECT BY n = 7",
    "SELECT n FROM t START WITH n = 1",
    "SELECT n FROM t GROUP BY n WITH ROLLUP",
    "SELECT n FROM t GROUP BY n WITH CUBE",
    "SELECT n FROM t GROUP BY n WITH TOTALS",
    "SELECT * ILIKE 'p' FROM (SELECT n FROM t)",
]
"""Statements that are to have other rows than 0, 1 and 2, or other columns than ``n``."""


@pytest.mark.parametrize("statement", IGNORED)
def test_the_engine_still_ignores_this_clause(statement):
    context = SessionContext()
    context.register_record_batches("t", [ROWS.to_batches()])
    found = context.sql(statement).to_pydict()
    assert sorted(found["n"]) == [0, 1, 2], "the engine knows a clause of ignored_clauses: see docs/engine-faults.md"


def test_the_engine_still_has_the_fault_least_of_infinities():
    context = SessionContext()
    context.register_record_batches("t", [pa.table({"g": [1, 2], "x": [float("inf"), float("-inf")]}).to_batches()])
    found = context.sql("SELECT min(x) AS a, max(x) AS b FROM t GROUP BY g ORDER BY g").to_pydict()
    largest = sys.float_info.max
    assert (found["a"][0], found["b"][1]) == (largest, -largest), "least_of_infinities is mended: see the page"


def test_the_engine_still_has_the_fault_integers_that_wrap():
    context = SessionContext()
    context.register_record_batches("t", [pa.table({"n": [2**63 - 1, 1]}).to_batches()])
    found = context.sql("SELECT max(n) + 1 AS a, sum(n) AS b FROM t").to_pydict()
    assert found == {"a": [-(2**63)], "b": [-(2**63)]}, "integers_that_wrap is mended: see docs/engine-faults.md"
    assert context.sql("SELECT sum(CAST(n AS DECIMAL(38, 0))) AS c FROM t").to_pydict() == {"c": [2**63]}


def test_the_engine_still_refuses_times_of_different_units():
    with pytest.raises(Exception, match="common argument type"):
        found("clock > TIME '00:00:01'")


def test_the_page_lists_the_faults_that_are_tested():
    listed = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert listed == {*WRONG, *TESTED_BELOW, *TESTED_ELSEWHERE}


def rows_of_the_page():
    """Return the upstream issues and what Lakebed does of each fault, with ``as above`` written out."""
    rows = re.findall(r"^\| `\w+` \| ([^|]*) \|.*\| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    for place, (issues, done) in enumerate(rows):
        rows[place] = issues, rows[place - 1][1] if done == "as above" else done
    return rows


@pytest.mark.parametrize("path", sorted(Path(workarounds.__file__).parent.glob("[!_]*.py")), ids=lambda path: path.stem)
def test_a_workaround_names_the_version_and_its_issues(path):
    header = ast.get_docstring(ast.parse(path.read_text()))
    (version,) = re.findall(r"with (DataFusion \d+)\.", PAGE.read_text())
    assert version in header
    issues = [issues for issues, done in rows_of_the_page() if f"`{path.stem}`" in done]
    assert issues, "no fault on the page has this workaround"
    assert set(re.findall(r"\d+", " ".join(issues))) <= set(re.findall(r"\d+", header))


def joined_by_sorting(keys: pa.Array, statement: str) -> list[dict[str, object]]:
    """Return the rows of a statement over the table ``t`` with the columns ``k``, not null, and ``x``, two a batch."""
    config = SessionConfig().with_target_partitions(2).with_batch_size(2)
    context = SessionContext(config.set("datafusion.optimizer.prefer_hash_join", "false"))
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("x", keys.type)])
    context.register_record_batches("t", [[pa.record_batch([pa.array(range(len(keys))), keys], schema=schema)]])
    return context.sql(statement).to_pylist()


def test_required_column_of_an_outer_join():
    with pytest.raises(Exception, match="declared as non-nullable but contains null"):
        joined_by_sorting(pa.array([None, 1]), "SELECT a.k FROM t a LEFT JOIN t b ON a.x = b.x AND a.k > b.k")


def test_nan_keys_across_batches():
    keys = pa.array([float("nan")] * 5)
    with pytest.raises(BaseException, match="None"):
        joined_by_sorting(keys, "SELECT a.k FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE a.x = b.x)")


def test_condition_of_a_narrowed_join():
    """It is true of four of five pairs, and is taken as one on ``x``."""
    keys = pa.array([1, 2, 3, 4, 5])
    statement = "SELECT a.x, b.x AS other FROM t a JOIN t b ON a.x = b.x AND a.k + b.k > 1"
    assert len(joined_by_sorting(keys, statement)) == 5


def test_nulls_of_several_equalities():
    context = SessionContext()
    context.from_pydict({"k": [1, None], "b": [1, 2], "c": [None, 3]}, name="t")
    two = "SELECT l.b FROM t l JOIN t r ON l.k IS NOT DISTINCT FROM r.k"
    assert sorted(context.sql(two).to_pydict()["b"]) == [1, 2]
    assert context.sql(f"{two} JOIN t x ON x.b = r.b").to_pydict()["b"] == [1]
    assert sorted(context.sql(f"{two.replace('JOIN', 'LEFT JOIN')} WHERE l.c = r.c").to_pydict()["b"]) == [1, 2]
