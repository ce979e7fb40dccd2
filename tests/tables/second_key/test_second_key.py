"""Rows by indexed fields: what makes an entry outdated, or a row without one; and with each rule left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Latest, Schema, clock
from lakebed.read.rows import second_key
from lakebed.read.rows.second_key import Values
from lakebed.table.instance import Instance
from lakebed.table.table import Table
from lakebed.upkeep import index_feed
from lakebed.upkeep.index_feed import feed_index
from tests.tables.cases import compact, rewritten
from tests.variants import Planted, Variant, planted

SCHEMA = Schema({"k": "int64"}, values={"a": "int32", "b": "string"})


@pytest.fixture
def instance() -> Instance:
    return lakebed.create(f"memory://{clock.random_token()}")


@pytest.fixture
def table(instance: Instance) -> Table:
    made = instance.create_table("t", SCHEMA, merge=Latest())
    instance.create_index("by_a", table="t", on=["a"])
    instance.create_index("by_b_a", table="t", on=["b", "a"])
    return made


def put(table: Table, *rows: tuple[Any, ...], **options: Any) -> int:
    names = table.schema.names[: len(rows[0])]
    schema = pa.schema([table.schema.arrow.field(name) for name in names])
    columns = zip(*rows, strict=True)
    return table.write(
        pa.table([pa.array(one, kind.type) for one, kind in zip(columns, schema, strict=True)], names), **options
    )


def fed(instance: Instance, *names: str, anew: bool = False) -> None:
    for name in names or ("by_a", "by_b_a"):
        feed_index(instance.table(name), instance.table("t"), anew=anew)


def keys(table: Any, **by: Any) -> list[int]:
    found = [row["k"] for row in table.get(by=by).to_pylist()]
    assert found == [row["k"] for row in table.scan(by=by).read_all().to_pylist()]
    assert table.count(by=by).rows == len(found)
    return found


# -- what each rule is for ------------------------------------------------------------------------------------------


def outdated_entry(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"), (2, 5, "x"))
    fed(instance)
    put(table, (1, 6, "x"))
    fed(instance)
    assert (keys(table, a=5), keys(table, a=6)) == ([2], [1])


def new_file(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    put(table, (2, 5, "x"))
    assert keys(table, a=5) == [1, 2]


def merged_file(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    put(table, (2, 5, "x"))
    compact(table)
    assert keys(table, a=5) == [1, 2]


def rewritten_file(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    rewritten(table, set={"a": "a + 1"})
    assert (keys(table, a=5), keys(table, a=6)) == ([], [1])
    fed(instance)
    assert keys(table, a=6) == [1]


def older_version(instance: Instance, table: Table) -> None:
    version = put(table, (1, 5, "x"))
    fed(instance)
    table.remove(KeyRange())
    put(table, (2, 5, "x"))
    fed(instance, anew=True)
    assert (keys(table, a=5), keys(table.at(version=version), a=5)) == ([2], [1])


def restored_version(instance: Instance, table: Table) -> None:
    version = put(table, (1, 5, "x"))
    fed(instance)
    table.remove(KeyRange())
    fed(instance, anew=True)
    table.restore(version=version)
    assert keys(table, a=5) == [1]


def restored_and_fed(instance: Instance, table: Table) -> None:
    restored_version(instance, table)
    fed(instance)
    assert keys(table, a=5) == [1]


def file_after_a_feed(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    put(table, (2, 5, "x"))
    fed(instance)
    put(table, (3, 5, "x"))
    assert keys(table, a=5) == [1, 2, 3]


def partial_row(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    table.write(pa.table({"k": [1], "b": ["y"]}), partial=True)
    assert keys(table, a=5, b="y") == [1]
    fed(instance)
    put(table, (2, 5, "y"))
    fed(instance)
    assert (keys(table, a=5, b="y"), keys(table, a=5, b="x")) == ([1, 2], [])


def partial_row_merged(instance: Instance, table: Table) -> None:
    partial_row(instance, table)
    compact(table)
    fed(instance)
    assert keys(table, a=5, b="y") == [1, 2]
    state, view = table.state(), instance.table("by_b_a").state().view
    assert view is not None
    assert not second_key.uncovered(state, view)


def null_of_one_field(instance: Instance, table: Table) -> None:
    put(table, (1, 5, None), (2, None, "x"))
    fed(instance)
    assert (keys(table, a=5), keys(table, a=5, b="x")) == ([1], [])


def deleted_row(instance: Instance, table: Table) -> None:
    put(table, (1, 5, "x"))
    fed(instance)
    table.delete([1])
    fed(instance)
    assert keys(table, a=5) == []


Case = Callable[[Instance, Table], None]
CASES: tuple[Case, ...] = (
    outdated_entry,
    new_file,
    merged_file,
    rewritten_file,
    older_version,
    restored_version,
    restored_and_fed,
    file_after_a_feed,
    partial_row,
    partial_row_merged,
    null_of_one_field,
    deleted_row,
)


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_with_the_values(instance, table, case):
    case(instance, table)


def _set(target: Any, name: str, wrong: Any) -> Variant:
    return lambda: [Planted(target, name, wrong)]


def _uncovered_by_sequence(state: Any, view: Any) -> Sequence[Any]:
    least = view.index.sequence
    return [file for file in state.referenced().values() if state.files[file.id].sequence_hi >= least]


def _one_file_too_many(self: Any, files: Any) -> Any:
    return files, self._snapshot.state.next_sequence + 1


BUGS: tuple[tuple[str, Variant, Case], ...] = (
    ("rows are not compared", _set(Values, "among", lambda _, rows: rows), outdated_entry),
    ("files without entries are not searched", _set(second_key, "uncovered", lambda _state, _view: ()), new_file),
    ("merged files have entries", _set(second_key, "uncovered", lambda _state, _view: ()), merged_file),
    ("rewritten files have entries", _set(second_key, "uncovered", _uncovered_by_sequence), rewritten_file),
    (
        "an index that was built later answers",
        _set(second_key, "answers", lambda view, state: state.restored_version <= view.version),
        older_version,
    ),
    (
        "files that were brought back have entries",
        _set(second_key, "answers", lambda view, state: view.index.built <= state.version),
        restored_version,
    ),
    (
        "a feed forgets what was brought back",
        _set(index_feed, "_missing", lambda _, state, view: list(second_key.uncovered(state, view))),
        restored_and_fed,
    ),
    ("a feed says more than it has", _set(index_feed._Entries, "coverable", _one_file_too_many), file_after_a_feed),
    (
        "partial rows have entries",
        _set(index_feed._Entries, "_has_partial_rows", lambda _self, _file: False),
        partial_row,
    ),
    ("a partial row has all values", _set(Values, "possible", Values.among), partial_row),
)


@pytest.mark.parametrize(("variant", "case"), [pytest.param(variant, case, id=name) for name, variant, case in BUGS])
def test_a_planted_bug_is_found(instance, table, variant, case):
    with planted(variant), pytest.raises(AssertionError):
        case(instance, table)
