"""Looks for counterexamples to the law of merge functions: f(f(A) + f(B)) = f(A + B).

:func:`check_merge_function` makes random rows with few keys, divides them into runs by arrival as writes do, merges the
runs in different groupings as compactions do, and compares the results. It also applies all the checks of
:mod:`lakebed.files.merging.custom_functions`. Use it in the tests of a package that declares a function:

    def test_top_three():
        check_merge_function(top_three, Schema({"user": "string"}, {"score": "int64"}, {"game": "string"}))

Errors: UsageError with the code MERGE_FUNCTION_FAILED, with the rows of the smallest counterexample that was found.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.files.merging.custom_functions import RowsFunction, function_of
from lakebed.model.arrays import of_integers
from lakebed.model.keys import sorted_by
from lakebed.model.merge_modes import Custom

if TYPE_CHECKING:
    from lakebed.clock import Chance
    from lakebed.model.schema import Field, Schema

_ROWS_MAX = 12
_KEYS = 3
_NULLS = 0.1

Run = list[dict[str, Any]]


def check_merge_function(  # noqa: PLR0913 - what is checked, over which rows, how often
    function: Callable[[pa.RecordBatch], Any] | Custom,
    schema: Schema,
    *,
    rows: Callable[[Chance], dict[str, Any]] | None = None,
    equal: Callable[[pa.Table, pa.Table], bool] | None = None,
    examples: int = 200,
    seed: int | None = 0,
) -> None:
    """Raise UsageError if the function breaks a rule for some of ``examples`` random inputs; names the rows.

    ``function`` is the function itself, or a merge mode. ``rows`` makes one row, by column, from a random source (such
    as a `random.Random`); by default columns have random values of their types, of which some are null, and floats are
    sums of a few powers of two, so that their sums are exact. ``equal`` compares two results; by default they
    have to be equal. With ``seed=None`` each call tries other rows.
    """
    checked = _named(function) if callable(function) else function_of(function, schema)
    make = rows or (lambda chance: {field.name: _random_value(field, chance) for field in schema.fields})
    same = equal or (lambda once, regrouped: bool(once.equals(regrouped)))
    chance = clock.chance(seed)
    for number in range(examples):
        # Small inputs first: a counterexample is then short.
        size = 1 + number * _ROWS_MAX // examples
        given = [make(chance) for _ in range(size)]
        cut = chance.randrange(size + 1)
        _check(checked, schema, (given[:cut], given[cut:]), same)


def _named(function: Callable[[pa.RecordBatch], Any]) -> RowsFunction:
    return RowsFunction(repr(getattr(function, "__name__", type(function).__name__)), function)


def _check(function: RowsFunction, schema: Schema, runs: tuple[Run, Run], same: Callable[..., bool]) -> None:
    older, newer = (_run_table(run, schema) for run in runs)
    once = _merged(function, schema, [older, newer])
    first, second = (_merged(function, schema, [run]) for run in (older, newer))
    for text, regrouped in (
        ("f(f(A) + f(B))", [first, second]),
        ("f(f(A) + B)", [first, newer]),
        ("f(A + f(B))", [older, second]),
        ("f(f(A + B))", [once]),
    ):
        found = _merged(function, schema, regrouped)
        if not same(once, found):
            raise _broken(function, text, runs, once, found)


def _merged(function: RowsFunction, schema: Schema, runs: Sequence[pa.Table]) -> pa.Table:
    """Return the result for the rows of runs, in order of arrival."""
    rows = pa.concat_tables(runs).combine_chunks()
    if not rows.num_rows:
        return rows
    arrival = "__arrival"
    rows = rows.append_column(arrival, of_integers(_numbers(rows.num_rows)))
    rows = sorted_by(rows, (*schema.sort_names, arrival)).drop_columns([arrival])
    return pa.Table.from_batches([function(rows.combine_chunks().to_batches()[0], schema)])


def _broken(function: RowsFunction, text: str, runs: tuple[Run, Run], once: pa.Table, found: pa.Table) -> Error:
    older, newer = runs
    return Code.MERGE_FUNCTION_FAILED(
        f"the merge function {function.name} breaks {text} = f(A + B) for A = {older} and B = {newer}: "
        f"{found.to_pylist()} is not {once.to_pylist()}",
        name=function.name,
    )


def _run_table(run: Run, schema: Schema) -> pa.Table:
    return pa.Table.from_pylist(run, schema=schema.arrow)


def _numbers(count: int) -> Any:
    import numpy as np

    return np.arange(count)


# -- random values ----------------------------------------------------------------------------------------------

_EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _random_value(field: Field, chance: Chance) -> Any:
    if field.nullable and chance.random() < _NULLS:
        return None
    return _of_type(field.type, chance)


def _of_type(kind: pa.DataType, chance: Chance) -> Any:
    """Return a value of the type, from few, so that keys and values repeat."""
    number = chance.randrange(_KEYS)
    if pa.types.is_list(kind):
        return [_of_type(kind.value_type, chance) for _ in range(number)]
    if pa.types.is_fixed_size_list(kind):
        return [_of_type(kind.value_type, chance) for _ in range(kind.list_size)]
    if pa.types.is_map(kind):
        keys = {str(key): key for key in (_of_type(kind.key_type, chance) for _ in range(number))}
        return [(key, _of_type(kind.item_type, chance)) for key in keys.values()]
    if pa.types.is_struct(kind):
        return {member.name: _of_type(member.type, chance) for member in kind}
    for is_kind, value in _PLAIN:
        if is_kind(kind):
            return value(number)
    raise Code.TYPE_UNSUPPORTED(f"no random values of {kind} are made: give rows=, a function that makes a row")


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[int], Any]], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, lambda number: number / 4),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_string, lambda number: "abc"[number]),
    (pa.types.is_binary, lambda number: bytes([number])),
    (pa.types.is_date, lambda number: _EPOCH.date() + dt.timedelta(number)),
    (pa.types.is_timestamp, lambda number: _EPOCH + dt.timedelta(seconds=number)),
    (pa.types.is_time, dt.time),
)
