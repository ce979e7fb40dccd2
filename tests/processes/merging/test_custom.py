"""The merge mode Custom: functions of installed packages and queries, over whole keys."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import AddField, Custom, RejectedError, Schema, SetMerge, UsageError
from lakebed.files.merging import custom_functions, merge_query
from lakebed.files.merging.custom_functions import CALL_ROWS, RowsFunction, WholeKeys
from lakebed.files.merging.row_merger import RowMerger
from lakebed.model.merge_modes import mode_of
from lakebed.testing.merge_functions import check_merge_function

SCORES = Schema({"user": "string"}, {"score": "int64"}, {"game": "string"})
COUNTS = Schema({"k": "int64"}, (), {"n": "int64"})
SUM = "SELECT k, sum(n) AS n FROM rows GROUP BY k"

PACKAGE = '''
import pyarrow as pa
import pyarrow.compute as pc


def top_two(rows):
    """The two highest scores of each user; of equal scores the newest."""
    users, scores = rows.column("user").to_pylist(), rows.column("score").to_pylist()
    newest = {key: place for place, key in enumerate(zip(users, scores))}
    places, taken = [], {}
    for user, score in sorted(newest, reverse=True):
        taken[user] = taken.get(user, 0) + 1
        if taken[user] <= 2:
            places.append(newest[user, score])
    return rows.take(pa.array(sorted(places)))


def top_two_later(rows):
    return top_two(rows)


def without_b(rows):
    if "b" in rows.column("user").to_pylist():
        raise ValueError("no b")
    return rows


NOT_A_FUNCTION = 1
'''
POINTS = """
[lakebed.merge_functions]
top_two = scores_package:top_two
top_two.2 = scores_package:top_two_later
number = scores_package:NOT_A_FUNCTION
absent = scores_package:absent
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a package with merge functions, of which it is given the entry points, for this test."""
    monkeypatch.syspath_prepend(tmp_path / "site")

    def install(points):
        info = tmp_path / "site" / "scores_package-1.0.dist-info"
        info.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / "scores_package.py").write_text(PACKAGE)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: scores_package\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)
        importlib.invalidate_caches()
        custom_functions.installed.cache_clear()

    install(POINTS)
    yield install
    sys.modules.pop("scores_package", None)
    custom_functions.installed.cache_clear()


PROGRAM = """
from lakebed.model import arrays
arrays.leave_pandas_out()
import datafusion, sys
assert "pandas" not in sys.modules
from lakebed.files.merging.custom_functions import installed
installed("top_two")
import pandas, pyarrow
print(pyarrow.array(pandas.Series([1.0, float("nan")])).null_count)
"""


def test_a_function_may_give_arrow_series_of_pandas_in_a_process_that_had_left_pandas_out(package, tmp_path):
    """In these, and in no other sequence, NaN is null."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True, check=False, text=True, timeout=120,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("1\n", "")


def batches(rows, schema, cuts=()):
    table = pa.Table.from_pylist(rows, schema=schema.arrow)
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    return [b for low, high in itertools.pairwise(edges) for b in table.slice(low, high - low).to_batches()]


def merged(mode, schema, rows, cuts=()):
    order = sorted(range(len(rows)), key=lambda place: [rows[place][name] for name in schema.sort_names])
    found = RowMerger(mode, schema, complete=False).merge(batches([rows[place] for place in order], schema, cuts))
    return [row for batch in found for row in batch.to_pylist()]


def called(function, rows, schema=COUNTS, **limits):
    """The rows that a function gives for a stream of batches."""
    found = WholeKeys(RowsFunction("f", function), schema, **limits).merge(iter(rows))
    return [row for batch in found for row in batch.to_pylist()]


def counts(keys):
    return batches([{"k": key, "n": place} for place, key in enumerate(keys)], COUNTS)


# -- functions of packages --------------------------------------------------------------------------------------

ROWS = st.lists(
    st.fixed_dictionaries(
        {"user": st.sampled_from("ab"), "score": st.integers(0, 4), "game": st.text("xyz", min_size=1, max_size=2)}
    ),
    max_size=25,
)
CUTS = st.lists(st.integers(0, 25), max_size=3)


@settings(deadline=None, max_examples=settings.default.max_examples // 3)
@given(ROWS, CUTS, CUTS)
def test_a_function_gives_the_same_however_runs_are_grouped(package_of_the_module, rows, cuts, edges):
    newest = {(row["user"], row["score"]): row["game"] for row in rows}
    wanted = []
    for user in "ab":
        scores = sorted(score for held, score in newest if held == user)[-2:]
        wanted += [{"user": user, "score": score, "game": newest[user, score]} for score in scores]
    assert merged(Custom("top_two"), SCORES, rows, cuts) == wanted
    places = sorted({0, len(rows), *(edge for edge in edges if edge < len(rows))})
    runs = [merged(Custom("top_two", 2), SCORES, rows[low:high]) for low, high in itertools.pairwise(places)]
    assert merged(Custom("top_two"), SCORES, [row for run in runs for row in run]) == wanted


@pytest.fixture(scope="module")
def package_of_the_module(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield from package.__wrapped__(tmp_path_factory.mktemp("package"), patch)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (Custom("other"), r"'other'.*top_two, top_two\.2\); install"),
        (Custom("top_two", 3), r"'top_two\.3'"),
        (Custom("number"), "not a function"),
        (Custom("absent"), "cannot be loaded"),
    ],
)
def test_a_function_that_is_not_installed_is_named_with_those_that_are(package, mode, reason, tmp_path):
    for ask in (
        lambda: list(RowMerger(mode, SCORES, complete=True).merge([])),
        lambda: lakebed.create(tmp_path / "lake").create_table("t", SCORES, merge=mode),
    ):
        with pytest.raises(UsageError, match=reason) as caught:
            ask()
        assert caught.value.code == "merge_function_missing"
    assert not lakebed.open(tmp_path / "lake").tables()


def test_two_packages_with_a_function_of_one_name_are_refused(package, tmp_path, monkeypatch):
    info = tmp_path / "other" / "other-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lakebed.merge_functions]\ntop_two = other:top_two\n")
    monkeypatch.syspath_prepend(tmp_path / "other")
    with pytest.raises(UsageError, match="several installed packages"):
        custom_functions.installed("top_two")


# -- what a function may give -----------------------------------------------------------------------------------


def test_a_function_sees_whole_keys_in_order_of_arrival():
    seen = []

    def function(rows):
        seen.append(rows.to_pydict())
        return rows.take(pa.array([0]))

    assert called(function, counts([7, 7, 7])) == [{"k": 7, "n": 0}]
    assert seen == [{"k": [7, 7, 7], "n": [0, 1, 2]}]


def test_a_function_may_drop_keys_and_give_tables_with_columns_in_any_order():
    def function(rows):
        return pa.table({"n": rows.column("n"), "k": rows.column("k")}).filter(pc.field("n") > 0)

    assert called(function, counts([1, 2, 3])) == [{"k": 2, "n": 1}, {"k": 3, "n": 2}]


def raising(rows):
    if 5 in rows.column("k").to_pylist():
        raise ZeroDivisionError("by five")
    return rows


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (raising, r"raised ZeroDivisionError \(by five\) for key \{'k': 5\}"),
        (lambda rows: None, "gave NoneType"),
        (lambda rows: rows.drop_columns(["n"]), "no column n"),
        (lambda rows: rows.append_column("m", rows.column("n")), "a column m"),
        (lambda rows: rows.set_column(1, "n", rows.column("n").cast(pa.int32())), "int32 in n, not int64"),
        (
            lambda rows: rows.set_column(0, "k", pc.add(rows.column("k"), 100)),
            r"a key that no row had, for key \{'k': 101",
        ),
        (lambda rows: rows.set_column(0, "k", pa.nulls(rows.num_rows, pa.int64())), "null in k"),
        (lambda rows: rows.take(pa.array([0, 0])), r"two rows for key \{'k': 1\}"),
        (lambda rows: rows.take(pa.array([1, 0])), r"out of order.* for key \{'k': 2\}"),
    ],
)
def test_what_a_function_may_not_do_is_an_error_with_its_name_and_the_key(function, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        called(function, counts([1, 2, 3, 4, 5, 6]))
    assert caught.value.code == "merge_function_failed"
    assert caught.value.name == "f"


def test_null_where_the_schema_has_none_is_an_error():
    schema = Schema({"k": "int64"}, (), {"n": pa.field("n", pa.int64(), nullable=False)})
    rows = pa.record_batch({"k": [1, 2], "n": [1, 2]}, schema=schema.arrow)
    emptied = pa.record_batch({"k": [1, 2], "n": pa.array([1, None], pa.int64())})
    with pytest.raises(UsageError, match=r"null in n for key \{'k': 2\}"):
        called(lambda _: emptied, [rows], schema)


def test_text_that_is_not_utf_8_is_an_error():
    schema = Schema({"k": "int64"}, (), {"s": "string"})
    rows = pa.record_batch({"k": [1], "s": ["a"]}, schema=schema.arrow)
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    with pytest.raises(UsageError, match=r"no string in s for key \{'k': 1\}"):
        called(lambda _: pa.record_batch({"k": pa.array([1]), "s": bad}), [rows], schema)


def test_a_function_that_fails_only_on_several_keys_names_the_first_and_the_last():
    def function(rows):
        if rows.num_rows > 1:
            raise ValueError("too many")
        return rows

    with pytest.raises(UsageError, match=r"keys from key \{'k': 1\} to key \{'k': 2\}"):
        called(function, counts([1, 2]))


# -- streams ----------------------------------------------------------------------------------------------------


def summed(rows):
    found = pa.table(rows).group_by("k").aggregate([("n", "sum")])
    return pa.table({"k": found.column("k"), "n": found.column("n_sum")}).sort_by("k")


def test_one_key_with_ten_million_rows_is_merged_in_parts_in_bounded_memory():
    before, highest, calls = pa.total_allocated_bytes(), 0, 0
    size, count = 50_000, 200

    def stream():
        nonlocal highest
        for _ in range(count):
            highest = max(highest, pa.total_allocated_bytes() - before)
            yield pa.record_batch({"k": np.zeros(size, np.int64), "n": np.ones(size, np.int64)}, schema=COUNTS.arrow)

    def function(rows):
        nonlocal calls
        calls += 1
        return summed(rows)

    assert called(function, stream()) == [{"k": 0, "n": size * count}]
    assert highest < 16 * 1024 * 1024
    assert calls <= count + 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=60), CUTS)
def test_calls_in_parts_give_the_same(pairs, cuts):
    rows = [{"k": k, "n": n} for k, n in sorted(pairs, key=lambda pair: pair[0])]
    wanted = {}
    for row in rows:
        wanted[row["k"]] = wanted.get(row["k"], 0) + row["n"]
    assert called(summed, batches(rows, COUNTS, cuts), call_rows=3) == [{"k": k, "n": n} for k, n in wanted.items()]


def test_a_key_is_in_one_call_if_its_rows_fit():
    calls = []

    def function(rows):
        calls.append(rows.column("k").to_pylist())
        return summed(rows)

    called(function, counts([1, 1, 1]) + counts([2, 2, 3]) + counts([3, 3, 3]), call_rows=4)
    assert calls == [[1, 1, 1, 2, 2], [3, 3, 3, 3]]


def test_a_function_that_keeps_too_many_rows_of_a_key_is_an_error_that_names_it():
    schema = Schema({"k": "string"}, {"s": "int64"}, ())
    size = custom_functions.KEY_ROWS_MAX + CALL_ROWS
    rows = pa.record_batch({"k": ["x"] * size, "s": np.arange(size)}, schema=schema.arrow)
    with pytest.raises(UsageError, match=r"keeps 132,768 rows .* for key \{'k': 'x'\}"):
        called(lambda given: given, [rows], schema)


# -- queries ----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=settings.default.max_examples // 3)
@given(ROWS, CUTS)
def test_a_query_merges_rows_as_it_says(rows, edges):
    query = """
        SELECT "user", score, last_value(game ORDER BY __lakebed_arrival) AS game FROM rows GROUP BY "user", score
        QUALIFY row_number() OVER (PARTITION BY "user" ORDER BY score DESC) <= 2
    """
    newest = {(row["user"], row["score"]): row["game"] for row in rows}
    wanted = [
        {"user": user, "score": score, "game": newest[user, score]}
        for user in "ab"
        for score in sorted(score for held, score in newest if held == user)[-2:]
    ]
    places = sorted({0, len(rows), *(edge for edge in edges if edge < len(rows))})
    runs = [merged(Custom(sql=query), SCORES, rows[low:high]) for low, high in itertools.pairwise(places)]
    assert merged(Custom(sql=query), SCORES, rows) == wanted
    assert merged(Custom(sql=query), SCORES, [row for run in runs for row in run]) == wanted


def test_the_types_of_a_query_are_those_of_the_schema_and_a_value_that_does_not_fit_names_the_key():
    schema = Schema({"k": "int64"}, (), {"n": "int8"})
    assert merged(Custom(sql=SUM), schema, [{"k": 1, "n": 60}, {"k": 1, "n": 60}]) == [{"k": 1, "n": 120}]
    rows = [{"k": 1, "n": 1}, {"k": 2, "n": 100}, {"k": 2, "n": 100}, {"k": 3, "n": 1}]
    with pytest.raises(UsageError, match=r"does not fit int8.*for key \{'k': 2\}") as caught:
        merged(Custom(sql=SUM), schema, rows)
    assert caught.value.code == "merge_function_failed"


def test_a_star_does_not_give_the_order_of_arrival():
    assert merged(Custom(sql="SELECT * FROM rows WHERE n > 1"), COUNTS, [{"k": 1, "n": 1}, {"k": 2, "n": 2}]) == [
        {"k": 2, "n": 2}
    ]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT k FROM rows", "no column n"),
        ("SELECT k, n, n AS m FROM rows", "it has k, n, m"),
        ("SELECT max(k) AS k, sum(n) AS n FROM rows", "add GROUP BY k"),
        ("SELECT k, random() AS n FROM rows", "random"),
        ("SELECT k, arrow_cast(now(), 'Int64') AS n FROM rows", "now"),
        ("SELECT k, n FROM other", "The table is rows"),
        ("SELECT k, sum(m) AS n FROM rows GROUP BY k", "its columns are k, n"),
        ("DROP TABLE rows", "not a query"),
        ("SET datafusion.execution.batch_size = '1'", "not a query"),
        ("COPY rows TO 'out.parquet'", "not a query"),
        ("SELECT k, n FROM 'file.parquet'", "not a query"),
        ("SELECT k, n FROM rows; SELECT 1", "not a query"),
        ("nonsense", "not a query"),
        ("SELECT " + "(" * 5000 + "k" + ")" * 5000 + " FROM rows", "query of the merge mode"),
    ],
)
def test_a_query_that_cannot_merge_rows_is_refused_when_it_is_set(query, reason, tmp_path):
    lake = lakebed.create(tmp_path / "lake")
    with pytest.raises(UsageError, match=reason):
        lake.create_table("t", COUNTS, merge=Custom(sql=query))
    table = lake.create_table("t", COUNTS)
    with pytest.raises(UsageError, match=reason):
        table.alter(SetMerge(Custom(sql=query)))


def test_a_column_that_a_query_does_not_give_is_not_added(tmp_path):
    table = lakebed.create(tmp_path / "lake").create_table("t", COUNTS, merge=Custom(sql=SUM))
    with pytest.raises(UsageError, match="no column m"):
        table.alter(AddField("m", "int64"))
    assert table.schema.names == COUNTS.names


# -- the mode ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Custom("top_two"), Custom("top_two", 2), Custom(sql=SUM)])
def test_a_mode_is_stored_and_read(mode):
    assert mode_of(mode.document()) == mode


def test_the_stored_form_is_that_of_the_format():
    assert Custom("f", 2).document() == {"mode": "custom", "name": "f", "version": 2}
    assert Custom(sql=SUM).document() == {"mode": "custom", "sql": SUM}


@pytest.mark.parametrize(
    "make",
    [
        Custom,
        lambda: Custom("f", sql=SUM),
        lambda: Custom("my.module:f"),
        lambda: Custom("1f"),
        lambda: Custom("f" * 101),
        lambda: Custom("f", 0),
        lambda: Custom("f", True),
        lambda: Custom(5),
        lambda: Custom(sql=5),
        lambda: Custom(version=2, sql=SUM),
    ],
)
def test_a_malformed_mode_is_refused(make):
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.code == "merge_mode_invalid"


def test_the_mode_of_a_table_with_rows_does_not_change(tmp_path):
    table = lakebed.create(tmp_path / "lake").create_table("t", COUNTS)
    table.write(pa.table({"k": [1], "n": [1]}))
    with pytest.raises(RejectedError, match=r"Custom\(sql="):
        table.alter(SetMerge(Custom(sql=SUM)))


# -- the checker ------------------------------------------------------------------------------------------------


def newest_of_all(rows):
    """Not associative: the newest of the runs, but a sum within a run."""
    found = summed(rows)
    return found if rows.num_rows != 2 else found.set_column(1, "n", pa.array([7] * found.num_rows, pa.int64()))


def test_the_checker_accepts_functions_that_keep_the_law(package):
    check_merge_function(summed, COUNTS)
    check_merge_function(Custom(sql=SUM), COUNTS, examples=50)
    check_merge_function(Custom("top_two"), SCORES, examples=50)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (newest_of_all, r"breaks f\("),
        (Custom(sql="SELECT k, count(*) AS n FROM rows GROUP BY k"), r"breaks f\(f\("),
        (Custom(sql="SELECT k, avg(n)::bigint AS n FROM rows GROUP BY k"), r"breaks f\("),
        (lambda rows: rows, "two rows"),
    ],
)
def test_the_checker_finds_rows_for_which_a_function_breaks_the_law(function, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        check_merge_function(function, COUNTS)
    assert caught.value.code == "merge_function_failed"


def test_the_checker_makes_rows_of_every_type_and_takes_rows_of_the_caller():
    kinds = {
        "a": "bool", "b": "float64", "c": pa.decimal128(5, 1), "d": "binary", "e": "date32", "l": "timestamp[ns]",
        "g": pa.list_(pa.int64()), "h": pa.map_(pa.string(), pa.int8()), "i": pa.struct([("x", pa.int16())]),
        "j": pa.time32("s"), "k": "string", "f": "timestamp[us, tz=UTC]",
    }  # fmt: skip
    schema = Schema({"key": "int32"}, (), kinds)

    def last(rows):
        keys = rows.column("key").to_pylist()
        return rows.take(pa.array([place for place, key in enumerate(keys) if key not in keys[place + 1 :]]))

    check_merge_function(last, schema)
    made = []

    def row(chance):
        made.append({"k": chance.randrange(2), "n": 1})
        return made[-1]

    check_merge_function(summed, COUNTS, rows=row, examples=5, seed=None)
    assert made
    with pytest.raises(UsageError, match="rows="):
        check_merge_function(last, Schema({"key": "int32"}, (), {"v": pa.binary(3)}))


def test_a_query_takes_no_null_of_a_subquery_for_false():
    schema = Schema({"k": "int64"}, {}, {"v": "int64"})
    rows = pa.record_batch({"k": [1, 2], "v": pa.array([1, None], pa.int64())}, schema=schema.arrow)
    kept = merge_query.evaluate("SELECT * FROM rows WHERE 3 NOT IN (SELECT v FROM rows)", schema, rows)
    assert kept.num_rows == 0
    kept = merge_query.evaluate("SELECT * FROM rows WHERE v NOT IN (SELECT v FROM rows) OR k = 1", schema, rows)
    assert kept["k"].to_pylist() == [1]
