"""Translates DataFusion's expressions into conditions on columns. Pure: expressions are inspected, not evaluated.

Requires expressions as the optimizer leaves them: both sides of a comparison have one type, so a column with a cast is
cast to the type of the literal beside it; constants are folded, and casts are moved from columns to literals wherever
that is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.engine.workarounds.opaque_casts import HIDING
from lakebed.read.rows.conditions import (
    FLIPPED,
    UNKNOWN,
    And,
    Comparison,
    Condition,
    Constant,
    IsNull,
    Not,
    OneOf,
    Operator,
    Or,
    StartsWith,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from datafusion import Expr

_DEPTH_MAX = 100
"""Deeper expressions are UNKNOWN. A long chain of one operator, AND or OR, is not deep."""


def condition_of(filters: Iterable[Expr]) -> Condition:
    """Filters, all of which must be true, as one condition."""
    return And([_condition(one, 0) for one in filters])


def _condition(expression: Expr, depth: int) -> Condition:
    if depth > _DEPTH_MAX:
        return UNKNOWN
    match expression.variant_name():
        case "BinaryExpr":
            return _binary(expression, depth)
        case "Not":
            return Not(_condition(expression.rex_call_operands()[0], depth + 1))
        case "IsTrue":
            # Also false if the operand is null, so its negation is UNKNOWN.
            return And((_condition(expression.rex_call_operands()[0], depth + 1), UNKNOWN))
        case "Between":
            side, low, high = expression.rex_call_operands()
            between = And((_comparison(side, ">=", low), _comparison(side, "<=", high)))
            return Not(between) if expression.to_variant().negated() else between
        case "InList":
            return _in_list(expression)
        case "ScalarFunction" if (hidden := _hidden(expression)) is not None and hidden.variant_name() == "InList":
            return _in_list(hidden)
        case "Like" | "ScalarFunction":
            return _starts_with(expression)
        case "IsNull":
            return _is_null(expression)
        case "IsNotNull":
            return Not(_is_null(expression))
        case "Column":
            return Comparison(expression.to_variant().name(), "=", pa.scalar(value=True))
        case "Literal":
            value = expression.python_value().as_py()
            return Constant(value) if value is None or isinstance(value, bool) else UNKNOWN
        case _:
            return UNKNOWN


def _binary(expression: Expr, depth: int) -> Condition:
    operator = expression.rex_call_operator()
    if operator in ("AND", "OR"):
        parts = [_condition(part, depth + 1) for part in _operands(expression, operator)]
        return And(parts) if operator == "AND" else Or(parts)
    if operator not in FLIPPED:
        return UNKNOWN
    left, right = expression.rex_call_operands()
    if left.variant_name() == "Literal":
        return _comparison(right, FLIPPED[operator], left)
    return _comparison(left, FLIPPED[FLIPPED[operator]], right)


def _comparison(side: Expr, operator: Operator, literal: Expr) -> Condition:
    name = _column_name(side)
    if name is None or literal.variant_name() != "Literal":
        return UNKNOWN
    return Comparison(name, operator, literal.python_value())


def _in_list(expression: Expr) -> Condition:
    side, *listed = expression.rex_call_operands()
    name = _column_name(side)
    if name is None or any(item.variant_name() != "Literal" for item in listed):
        return UNKNOWN
    one_of = OneOf(name, [item.python_value() for item in listed])
    return Not(one_of) if expression.to_variant().negated() else one_of


def _starts_with(expression: Expr) -> Condition:
    """``LIKE 'abc%'``, of which only the prefix counts, and ``starts_with(…, 'abc')``."""
    operator, operands = expression.rex_call_operator(), expression.rex_call_operands()
    if operator not in ("like", "starts_with") or len(operands) != 2 or operands[1].variant_name() != "Literal":
        return UNKNOWN
    name, pattern = _column_name(operands[0]), operands[1].python_value().as_py()
    if name is None or not isinstance(pattern, str):
        return UNKNOWN
    if operator == "starts_with":
        return StartsWith(name, pattern)
    marks = {"%", "_", "\\", expression.to_variant().escape_char()}
    end = next((position for position, character in enumerate(pattern) if character in marks), len(pattern))
    return And((StartsWith(name, pattern[:end]), UNKNOWN))


def _is_null(expression: Expr) -> Condition:
    side = expression.rex_call_operands()[0]
    return IsNull(side.to_variant().name()) if side.variant_name() == "Column" else UNKNOWN


def _operands(expression: Expr, operator: str) -> list[Expr]:
    """Return the operands of a chain of one operator, however it is nested."""
    parts: list[Expr] = []
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        if one.variant_name() == "BinaryExpr" and one.rex_call_operator() == operator:
            waiting += reversed(one.rex_call_operands())
        else:
            parts.append(one)
    return parts


def _column_name(side: Expr) -> str | None:
    """Return the column on one side of a comparison, with or without a cast to the other's type; None if it is none.

    The predicate's own casts are hidden.
    """
    side = _hidden(side) or side
    if side.variant_name() == "Cast":
        side = side.rex_call_operands()[0]
    if side.variant_name() != "Column":
        return None
    name: str = side.to_variant().name()
    return name


def _hidden(expression: Expr) -> Expr | None:
    """Return what is hidden from the optimizer (:mod:`lakebed.engine.workarounds.opaque_casts`); None if nothing is."""
    if expression.variant_name() != "ScalarFunction" or expression.rex_call_operator() != HIDING:
        return None
    operands: list[Expr] = expression.rex_call_operands()
    return operands[0] if len(operands) == 1 else None
