"""Tables as Polars lazy frames, with pushdown of columns, predicate and limit.

A predicate becomes a condition (:mod:`lakebed.read.rows.conditions`), by which a read is narrowed. Polars applies the
predicate to the rows that are read itself, so the result is that of Polars; and first to no rows, so that it refuses
the types that it would refuse. Polars exposes its expressions only as JSON, whose form may change: an unknown form is
an UNKNOWN condition.

Polars has made the types of both sides equal, and so may have cast the column. Its casts are its own: to an integer
they cut a decimal, an Enum has the order of its categories, and a time that does not fit wraps around. A comparison of
a cast is UNKNOWN, but for the casts to numbers that keep every value or its order.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lakebed.model.arrays import empty_table
from lakebed.model.documents import load
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.frames import polars_frame
from lakebed.read.rows.conditions import (
    FLIPPED,
    UNKNOWN,
    And,
    Comparison,
    Condition,
    OneOf,
    Operator,
    Or,
    StartsWith,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl
    import pyarrow as pa

    from lakebed.model.schema import Schema
    from lakebed.read.rows.row_stream import RowStream

_OPERATORS: dict[str, Operator] = {"Eq": "=", "NotEq": "!=", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}

_EXACT_CASTS = {
    "Float64": "double",
    **{f"{sign}Int{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
}
"""Types of Polars to which it casts a number as :meth:`lakebed.model.key_type.FixedWidth.cast` does, and their names in
Arrow.
"""


def lazy_frame(schema: Schema, rows: Callable[..., RowStream], name: str) -> pl.LazyFrame:
    """Return a lazy frame of the rows that ``rows(condition, columns, limit)`` returns, in key order."""
    _polars()
    from polars.io.plugins import register_io_source

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, rows_max: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        wanted = list(schema.names) if columns is None else columns
        condition: Condition = UNKNOWN
        read_columns = wanted
        if predicate is not None:
            polars_frame(empty_table(schema.returned)).filter(predicate)
            read_columns = list(dict.fromkeys([*wanted, *predicate.meta.root_names()]))
            if rows_max is None:
                # With a limit, Polars applies the predicate to the first rows of all.
                condition = condition_of(predicate)
        # If only the number of rows is needed, read some column.
        with rows(condition, read_columns or [schema.names[0]], rows_max) as reader:
            for batch in reader:
                given = polars_frame(batch)
                found = given if predicate is None else given.filter(predicate)
                yield found.select(wanted or schema.names[0])

    return register_io_source(
        read,
        schema=polars_frame(empty_table(schema.returned)).schema,
        is_pure=True,
        explain_name="lakebed",
        explain_detail=name,
    )


def _polars() -> Any:
    with optional_imports():
        import polars as pl
    return pl


def condition_of(predicate: pl.Expr) -> Condition:
    """Return the condition of a predicate that Polars pushes down."""
    try:
        return _condition(load(predicate.meta.serialize(format="json")))
    except (ValueError, RecursionError):
        # Nested too deep, or with a number that JSON cannot represent: Polars applies it to all rows.
        return UNKNOWN


def _condition(node: Any) -> Condition:
    match node:
        case {"BinaryExpr": {"left": _, "op": "And" | "Or" as operator, "right": _}}:
            parts = [_condition(operand) for operand in _chain(node, operator)]
            return And(parts) if operator == "And" else Or(parts)
        case {"BinaryExpr": {"left": left, "op": str(name), "right": right}} if name in _OPERATORS:
            operator = _OPERATORS[name]
            if _column_name(left) is None:
                left, right, operator = right, left, FLIPPED[operator]
            return _comparison(left, operator, right)
        case {"Function": {"input": [side, low, high], "function": {"Boolean": {"IsBetween": {"closed": "Both"}}}}}:
            return And((_comparison(side, ">=", low), _comparison(side, "<=", high)))
        case {"Function": {"input": [side, {"Literal": _} as listed], "function": {"Boolean": {"IsIn": _}}}}:
            column, values = _column_name(side), _literal_scalar(listed)
            if (
                "Cast" in side
                or column is None
                or values is None
                or not hasattr(values.type, "value_type")
                or not values.is_valid
                # With nulls_equal, null is one of the values.
                or values.values.null_count
            ):
                return UNKNOWN
            return OneOf(column, values.values)
        case {"Function": {"input": [side, {"Literal": _} as stem], "function": {"StringExpr": "StartsWith"}}}:
            column, value = _column_name(side), _literal_scalar(stem)
            text = None if value is None else value.as_py()
            if column is None or not isinstance(text, str) or "Cast" in side:
                return UNKNOWN
            return StartsWith(column, text)
        case _:
            return UNKNOWN


def _chain(node: Any, operator: str) -> Iterator[Any]:
    """Return the operands of a chain of AND or OR, however it is nested."""
    waiting = [node]
    while waiting:
        match waiting.pop():
            case {"BinaryExpr": {"left": left, "op": found, "right": right}} if found == operator:
                waiting += [right, left]
            case operand:
                yield operand


def _comparison(side: Any, operator: Operator, literal: Any) -> Condition:
    name = _column_name(side)
    value = None if name is None or "Literal" not in literal else _literal_scalar(literal)
    if name is None or value is None or not _is_exact(side, value.type):
        return UNKNOWN
    return Comparison(name, operator, value)


def _column_name(node: Any) -> str | None:
    """Return the column on one side of a comparison, with or without a cast; None if it is not a column."""
    match node:
        case {"Column": str(name)} | {"Cast": {"expr": {"Column": str(name)}}}:
            return name
        case _:
            return None


def _is_exact(side: Any, kind: pa.DataType) -> bool:
    """Return whether a column on one side of a comparison has no cast, or one to the literal's type that is known."""
    match side:
        case {"Cast": {"dtype": {"Literal": str(name)}}}:
            return name in _EXACT_CASTS and str(kind) == _EXACT_CASTS[name]
        case {"Cast": {"dtype": {"Literal": {"Decimal": _}}}}:
            return str(kind).startswith("decimal")
        case _:
            return "Cast" not in side


def _literal_scalar(node: Any) -> pa.Scalar | None:
    """Return a literal as an Arrow scalar, converted by Polars, whose JSON has some values in a format of its own.

    None for values that Polars writes but does not read, such as NaN and infinite floats.
    """
    import io

    import polars as pl

    try:
        expression = pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")
    except pl.exceptions.ComputeError:
        return None
    return pl.select(expression).to_series().to_arrow()[0]
