"""Finds predicates that DataFusion 55 merges wrongly with other conditions, such as the bounds of a key range. Pure.

It combines no conditions within IS TRUE, so such a predicate is evaluated in this form. No issue upstream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakebed.engine.datafusion import column_names

if TYPE_CHECKING:
    from datafusion import Expr


def must_stand_alone(conditions: Iterable[Expr], optimized: Iterable[Expr]) -> bool:
    """Return whether a predicate must not be merged with others, from its conditions as written and as optimized."""
    return any(map(_equates, optimized)) or any(map(_begins_with_constant, conditions))


def _equates(expression: Expr) -> bool:
    """Return whether it requires that two expressions are equal, neither of them a constant.

    From ``k = lower(k)`` the engine derives that rows sorted by one are sorted by the other, and then cannot plan.
    """
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        if one.variant_name() != "BinaryExpr":
            continue
        operator = one.rex_call_operator()
        if operator == "AND":
            waiting += one.rex_call_operands()
        elif operator == "=" and all(side.variant_name() != "Literal" for side in one.rex_call_operands()):
            return True
    return False


def _begins_with_constant(condition: Expr) -> bool:
    """Return whether a comparison in it has a constant on its left and a column on its right.

    The engine combines such a comparison wrongly with others on the column if the constant has yet to be computed: from
    ``day = X AND DATE '2026-01-01' = day`` it derives that no row can pass.
    """
    waiting = [condition]
    while waiting:
        one = waiting.pop()
        kind = one.variant_name()
        if kind == "Not" or (kind == "BinaryExpr" and one.rex_call_operator() in ("AND", "OR")):
            waiting += one.rex_call_operands()
        elif kind in ("BinaryExpr", "Between", "InList"):
            left, *others = one.rex_call_operands()
            if not _names_column(left) and any(map(_names_column, others)):
                return True
    return False


def _names_column(expression: Expr) -> bool:
    """Return whether an expression names a column; True if that is unknown."""
    try:
        return next(column_names(expression), None) is not None
    except Exception:  # noqa: BLE001 - see there
        return True
