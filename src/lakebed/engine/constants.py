"""Constants: SQL expressions that name no column, such as ``'***'`` or ``NULL``. Errors: UsageError."""

from __future__ import annotations

import pyarrow as pa

from lakebed.engine.complexity import fitted
from lakebed.engine.predicate import reason_of, row_engine
from lakebed.engine.stack import on_deep_stack
from lakebed.errors import Code, Error
from lakebed.model.foreign_errors import translate_errors

_ROW = pa.table({"": pa.array([True])})
"""A row whose column no expression can name."""


def constant(text: str, kind: pa.DataType) -> pa.Scalar:
    """The value of an expression, as a value of that type. Raises UsageError if it is none."""

    def refused(error: BaseException) -> Error:
        return Code.EXPRESSION_FAILED(f"{text!r} is no constant of type {kind}: {reason_of(error)}")

    bounds = fitted(text, "the constant")

    def value() -> pa.Scalar:
        frame = row_engine().from_arrow(_ROW)
        found = frame.select(frame.parse_sql_expr(bounds.text).alias("value")).to_arrow_table().column(0)
        return found.cast(kind)[0]

    with translate_errors(refused):
        return value() if bounds.flat else on_deep_stack(value)
