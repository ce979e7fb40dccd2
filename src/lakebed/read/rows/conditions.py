"""Conditions on columns, from predicates of several engines, and the keys for which they can be true. Pure.

Predicates of DataFusion (:mod:`lakebed.read.rows.expressions`), Polars and Spark are translated into conditions, and
:func:`keys_of` derives their :class:`~lakebed.read.rows.key_ranges.KeySet`. :func:`plan_where` plans a read of the rows
for which a condition may be true: by their keys, and later, when files are open, by the bounds of all columns
(:mod:`lakebed.read.rows.page_bounds`). Core types: :class:`Comparison`,
:class:`OneOf`, :class:`StartsWith` and :class:`IsNull` are conditions on one column; :class:`And`, :class:`Or` and
:class:`Not` combine conditions, by SQL's three-valued logic; :class:`Constant` is one of the three values, and
``UNKNOWN`` stands for any other condition.

Rule: a translation may be weaker than the predicate, never stronger, for every value of a column, null and NaN
included. UNKNOWN, and a condition on a column that is no key field, can be true for every key.

*Casts.* An engine compares a column with a literal of another type by casting one of them;
:func:`lakebed.model.key_types.ends_of` finds the values of the column that pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

import pyarrow as pa
from msgspec.structs import replace

from lakebed.errors import BadKeyError
from lakebed.model.arrays import of_binary
from lakebed.model.key_types import ends_of
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyCodec, KeyRange, iter_ranges
from lakebed.model.schema import Field
from lakebed.model.types import canonical
from lakebed.read.rows.key_ranges import EVERY_KEY, NO_KEY, KeySet, both, either, key_ranges, shared, within
from lakebed.read.rows.plan import QueryPlan, plan

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState

Operator = Literal["=", "!=", "<", "<=", ">", ">="]

FLIPPED: Final[dict[str, Operator]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator with its sides exchanged."""

_NEGATED: Final[dict[Operator, Operator]] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class _Unknown(Enum):
    UNKNOWN = "unknown"


UNKNOWN: Final = _Unknown.UNKNOWN
"""A condition that may be true, false or null."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column, cast to the type of the literal if it has another, compared with it."""

    column: str
    operator: Operator
    literal: pa.Scalar


@dataclass(frozen=True, slots=True)
class OneOf:
    """A column that equals one of the literals."""

    column: str
    literals: Sequence[pa.Scalar]


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A column of text that begins with ``stem``."""

    column: str
    stem: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column that is null."""

    column: str


@dataclass(frozen=True, slots=True)
class Constant:
    """True, false, or null: None."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class And:
    """All of the conditions; none is true."""

    parts: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of the conditions; none is false."""

    parts: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    part: Condition


Condition: TypeAlias = (
    "Comparison | OneOf | StartsWith | IsNull | Constant | And | Or | Not | Literal[_Unknown.UNKNOWN]"
)


def narrow(
    ranges: Sequence[EncodedRange], condition: Condition, schema: Schema
) -> tuple[tuple[EncodedRange, ...], KeySet]:
    """Intersect the ranges with the keys for which a condition can be true.

    The result is disjoint and in key order. Also returns the set of these keys, over all fields of the sort order, for
    a plan.
    """
    keys = keys_of(condition, schema.order)
    return tuple(shared(list(iter_ranges(ranges)), key_ranges(keys, schema.codec))), keys


def plan_where(state: TableState, ranges: Sequence[EncodedRange], condition: Condition) -> QueryPlan:
    """Plan a read of the rows of the ranges for which the condition can be true; the caller evaluates it on each row.

    The condition is one on merged rows. A read of the plan leaves out more rows, by the bounds of columns in pages.
    """
    return replace(plan(state, *narrow(ranges, condition, state.created)), condition=condition)


def columns_of(condition: Condition) -> Iterator[str]:
    """Return the columns that a condition is on, some of them several times."""
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from columns_of(part)
        case Not(part):
            yield from columns_of(part)
        case Comparison(column) | OneOf(column) | StartsWith(column) | IsNull(column):
            yield column
        case _:
            return


def only(condition: Condition, columns: AbstractSet[str]) -> Condition:
    """Return the condition with UNKNOWN in the place of those on other columns."""
    match condition:
        case And(parts):
            return And([only(part, columns) for part in parts])
        case Or(parts):
            return Or([only(part, columns) for part in parts])
        case Not(part):
            return Not(only(part, columns))
        case _:
            return condition if columns >= set(columns_of(condition)) else UNKNOWN


def keys_of(condition: Condition, codec: KeyCodec, *, truth: bool = True) -> KeySet:
    """Return the keys of the rows for which the condition can be true, or with ``truth=False`` can be false."""
    match condition:
        case And() | Or():
            sets = [keys_of(part, codec, truth=truth) for part in condition.parts]
            return both(sets) if isinstance(condition, And) == truth else either(sets)
        case Not():
            return keys_of(condition.part, codec, truth=not truth)
        case Comparison(column, operator, literal):
            return _compared(codec, column, operator if truth else _NEGATED[operator], literal)
        case OneOf(column, literals):
            equal = [_compared(codec, column, "=" if truth else "!=", literal) for literal in literals]
            return either(equal) if truth else both(equal)
        case StartsWith(column, stem):
            return _starting(codec, column, stem) if truth else EVERY_KEY
        case IsNull(column):
            # Key fields are never null.
            found = _field(codec, column)
            return NO_KEY if truth and found is not None and not found[1].nullable else EVERY_KEY
        case Constant(value):
            return EVERY_KEY if value is truth else NO_KEY
        case _Unknown.UNKNOWN:
            return EVERY_KEY
        case _:
            assert_never(condition)


def _compared(codec: KeyCodec, name: str, operator: Operator, literal: pa.Scalar) -> KeySet:
    found = _field(codec, name)
    if found is None:
        return EVERY_KEY
    position, field = found
    if not literal.is_valid:
        return NO_KEY
    ends = ends_of(field.key_type, _in_one_layout(literal))
    return EVERY_KEY if ends is None else within(position, _passing(operator, *ends))


def _in_one_layout(literal: pa.Scalar) -> pa.Scalar:
    """Return text and bytes in the type of fields: engines have them in several layouts."""
    kind = canonical(literal.type)
    if kind == literal.type or kind not in (pa.string(), pa.binary()):
        return literal
    return of_binary([bytes(literal.as_buffer())], kind)[0]


def _starting(codec: KeyCodec, name: str, stem: str) -> KeySet:
    found = _field(codec, name)
    if found is None or not found[1].is_text:
        return EVERY_KEY
    position, field = found
    try:
        keys = KeyCodec((field,)).encode_range(KeyRange.starts_with(stem)) if stem else ALL_KEYS
    except BadKeyError:
        return EVERY_KEY
    return within(position, (keys,))


def _field(codec: KeyCodec, name: str) -> tuple[int, Field] | None:
    return next(((position, field) for position, field in enumerate(codec.fields) if field.name == name), None)


def _passing(operator: Operator, smaller: bytes | None, not_larger: bytes | None) -> list[EncodedRange]:
    """Ranges of one field: values below the literal end at ``smaller``, values up to it at ``not_larger``."""
    below, above = EncodedRange(b"", smaller), EncodedRange(not_larger or b"", None)
    match operator:
        case "<":
            return [below]
        case "<=":
            return [EncodedRange(b"", not_larger)]
        case ">":
            return [above] if not_larger is not None else []
        case ">=":
            return [EncodedRange(smaller, None)] if smaller is not None else []
        case "=":
            return [EncodedRange(smaller, not_larger)] if smaller is not None else []
        case "!=":
            return [below, above] if not_larger is not None else [below]
