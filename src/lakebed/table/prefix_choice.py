"""The key ranges of prefixes that a caller names, or chooses among those that the table has.

A prefix is the values of the first row key fields. A plain value is a prefix of one field, and a tuple of several; a
list holds several prefixes. Pure.

Errors: UsageError for what is no prefix, or a choice that does not fit; BadKeyError for values that do not fit the key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.keys import EncodedRange, KeyCodec, successor

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

Choose = Callable[[pa.Table], Any]
"""Chooses among prefixes: returns a truth value for each of them, or those that it wants."""


def check_choice(choose: Choose | None, depth: int | None, *, named: bool) -> None:
    """Raise UsageError unless there is a depth for a choice, and nothing else that is ``named`` beside it."""
    if (choose is None) != (depth is None) or (choose is not None and named):
        raise Code.ARGUMENTS_CONFLICT("choose and depth belong together, and exclude ranges and prefix")


def ranges_of(prefix: Any, schema: Schema) -> list[EncodedRange]:
    """Return the keys that begin with a prefix, or with any of a list of them."""
    return [_range_of(one, schema) for one in (prefix if isinstance(prefix, list) else [prefix])]


def _range_of(prefix: Any, schema: Schema) -> EncodedRange:
    values = prefix if isinstance(prefix, tuple) else (prefix,)
    if not values:
        raise Code.ARGUMENT_INVALID("prefix = (): must have a value at least; for all rows give KeyRange()")
    encoded = schema.codec.encode(values)
    return EncodedRange(encoded, successor(encoded))


def chosen_ranges(found: pa.Table, choose: Choose, schema: Schema) -> list[EncodedRange]:
    """Return the keys that begin with one of the prefixes in ``found`` that ``choose`` returns."""
    choice = choose(found)
    if isinstance(choice, pa.Table | pa.RecordBatch):
        return _ranges_in(choice, found.schema, schema)
    values = _as_list(choice)
    if values and all(isinstance(value, bool) for value in values):
        if len(values) != found.num_rows:
            raise Code.ARGUMENT_INVALID(
                f"choose returned {len(values)} truth values for {found.num_rows} prefixes: one each is needed"
            )
        return _ranges_in(found.filter(pa.array(values)), found.schema, schema)
    for value in values:
        if (count := len(value) if isinstance(value, tuple) else 1) != found.num_columns:
            raise Code.ARGUMENT_INVALID(
                f"choose returned {shown(value)}, which has {count} values; prefixes here have {found.num_columns}"
            )
    return ranges_of(values, schema)


def _ranges_in(rows: pa.Table | pa.RecordBatch, arrow: pa.Schema, schema: Schema) -> list[EncodedRange]:
    """Return the keys that begin with the values of a row."""
    names = ", ".join(arrow.names)
    if rows.schema.names != arrow.names:
        raise Code.ARGUMENT_INVALID(f"choose returned columns {', '.join(rows.schema.names)}; prefixes have {names}")
    try:
        values = pa.table(rows).cast(arrow)
    except (pa.ArrowException, ValueError) as error:
        raise Code.ARGUMENT_INVALID(f"choose returned values that are no {names}: {error}") from error
    encoded = KeyCodec(schema.row_key[: len(arrow)]).encode_columns(values).to_pylist()
    return [EncodedRange(one, successor(one)) for one in encoded]


def _as_list(choice: Any) -> list[Any]:
    """Return the values of a list, an array of Arrow or NumPy, a series, or another iterable."""
    for method in ("to_pylist", "tolist"):
        if hasattr(choice, method):
            choice = getattr(choice, method)()
    if isinstance(choice, Iterable) and not isinstance(choice, str | bytes | tuple):
        return list(choice)
    raise Code.ARGUMENT_INVALID(
        f"choose returned {shown(choice)}: must be a truth value for each prefix, or a list of prefixes"
    )
