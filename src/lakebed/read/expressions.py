"""What a DataFusion expression says of the key. Pure: expressions are looked at, not run.

An expression is taken as the optimizer leaves it: both sides of a comparison are of one type, so that a column that is
cast is cast to the type of the literal beside it; constants are folded, and casts have moved from columns to literals
wherever that is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.model.keys import iter_ranges
from lakebed.read.key_ranges import (
    EVERY_KEY,
    NO_KEY,
    TURNED,
    KeySet,
    Operator,
    both,
    compared,
    either,
    key_ranges,
    none_of,
    null,
    one_of,
    shared,
    starting,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from datafusion import Expr

    from lakebed.model.keys import EncodedRange, KeyCodec
    from lakebed.model.schema import Schema

_DEPTH_MAX = 100
"""Deeper expressions are every key. Long chains of one AND or OR are not deep."""

_NEGATED: dict[str, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def keys_of(expression: Expr, codec: KeyCodec) -> KeySet:
    """The keys of the rows for which the expression can be true."""
    return _Walk(codec).keys(expression, wanted=True, depth=0)


def narrowed(
    ranges: Sequence[EncodedRange], parts: Iterable[Expr], schema: Schema
) -> tuple[list[EncodedRange], KeySet]:
    """What of the ranges may have rows of which all parts of a predicate are true: disjoint, in key order.

    And the keys of these rows, over all fields that rows are sorted by, for a plan.
    """
    keys = both([keys_of(part, schema.order) for part in parts])
    return list(shared(list(iter_ranges(ranges)), key_ranges(keys, schema.codec))), keys


class _Walk:
    """Follows an expression down; ``wanted`` False stands for those of which it can be false."""

    def __init__(self, codec: KeyCodec) -> None:
        self._codec = codec

    def keys(self, expression: Expr, *, wanted: bool, depth: int) -> KeySet:
        if depth > _DEPTH_MAX:
            return EVERY_KEY
        match expression.variant_name():
            case "BinaryExpr":
                return self._binary(expression, wanted=wanted, depth=depth)
            case "Not":
                return self.keys(expression.rex_call_operands()[0], wanted=not wanted, depth=depth + 1)
            case "IsTrue" if wanted:
                return self.keys(expression.rex_call_operands()[0], wanted=True, depth=depth + 1)
            case "Between":
                return self._between(expression, wanted=wanted)
            case "InList":
                return self._in_list(expression, wanted=wanted)
            case "Like" | "ScalarFunction" if wanted:
                return self._beginning(expression)
            case "IsNull" if wanted:
                return self._null(expression.rex_call_operands()[0])
            case "IsNotNull" if not wanted:
                return self._null(expression.rex_call_operands()[0])
            case "Literal":
                value = expression.python_value().as_py()
                return EVERY_KEY if value is wanted else NO_KEY
            case _:
                return EVERY_KEY

    def _binary(self, expression: Expr, *, wanted: bool, depth: int) -> KeySet:
        operator = expression.rex_call_operator()
        if operator in ("AND", "OR"):
            parts = [self.keys(part, wanted=wanted, depth=depth + 1) for part in _chain(expression, operator)]
            return both(parts) if (operator == "AND") == wanted else either(parts)
        if operator not in TURNED:
            return EVERY_KEY
        left, right = expression.rex_call_operands()
        if left.variant_name() == "Literal":
            left, right, operator = right, left, TURNED[operator]
        return self._compared(left, operator if wanted else _NEGATED[operator], right)

    def _compared(self, side: Expr, operator: str, literal: Expr) -> KeySet:
        if literal.variant_name() != "Literal":
            return EVERY_KEY
        name = _column(side)
        value: pa.Scalar = literal.python_value()
        return EVERY_KEY if name is None else compared(self._codec, name, _operator(operator), value)

    def _between(self, expression: Expr, *, wanted: bool) -> KeySet:
        variant = expression.to_variant()
        side, low, high = expression.rex_call_operands()
        if variant.negated() == wanted:
            return either([self._compared(side, "<", low), self._compared(side, ">", high)])
        return both([self._compared(side, ">=", low), self._compared(side, "<=", high)])

    def _in_list(self, expression: Expr, *, wanted: bool) -> KeySet:
        side, *listed = expression.rex_call_operands()
        name = _column(side)
        if name is None or any(item.variant_name() != "Literal" for item in listed):
            return EVERY_KEY
        values = [item.python_value() for item in listed]
        if expression.to_variant().negated() == wanted:
            return none_of(self._codec, name, values)
        return one_of(self._codec, name, values)

    def _beginning(self, expression: Expr) -> KeySet:
        """Of text that begins so: ``LIKE 'abc%'``, ``starts_with(…, 'abc')``."""
        operator, operands = expression.rex_call_operator(), expression.rex_call_operands()
        if operator not in ("like", "starts_with") or len(operands) != 2 or operands[1].variant_name() != "Literal":
            return EVERY_KEY
        name, pattern = _column(operands[0]), operands[1].python_value().as_py()
        if name is None or not isinstance(pattern, str):
            return EVERY_KEY
        if operator == "starts_with":
            return starting(self._codec, name, pattern)
        escapes = {"\\", expression.to_variant().escape_char()}
        stem = _until(pattern, {"%", "_", *escapes})
        return starting(self._codec, name, stem)

    def _null(self, side: Expr) -> KeySet:
        return null(self._codec, side.to_variant().name()) if side.variant_name() == "Column" else EVERY_KEY


def _chain(expression: Expr, operator: str) -> list[Expr]:
    """The operands of a chain of one operator, however it is nested."""
    parts: list[Expr] = []
    waiting = [expression]
    while waiting:
        one = waiting.pop()
        if one.variant_name() == "BinaryExpr" and one.rex_call_operator() == operator:
            waiting += reversed(one.rex_call_operands())
        else:
            parts.append(one)
    return parts


def _column(side: Expr) -> str | None:
    """The column that a side of a comparison is, maybe cast to the type of the other side; None: it is none."""
    if side.variant_name() == "Cast":
        side = side.rex_call_operands()[0]
    if side.variant_name() != "Column":
        return None
    name: str = side.to_variant().name()
    return name


def _operator(name: str) -> Operator:
    return TURNED[TURNED[name]]


def _until(pattern: str, marks: set[str | None]) -> str:
    end = next((position for position, character in enumerate(pattern) if character in marks), len(pattern))
    return pattern[:end]
