"""Arrow types in Lakebed: which can be keys or values, their JSON form, and which can be widened to which.

``to_json`` returns text for a plain type and an object for a nested one, so that a reader in any language can parse it:
``"int64"``, ``"uuid"``, ``"timestamp[us, tz=UTC]"``, ``"decimal128(10, 2)"``, ``{"list": …}``, ``{"fixed_size_list":
[item, length]}``, ``{"struct": [[name, …], …]}``, ``{"map": [key, item]}``, and at the top ``{"dictionary": values}``.
Names for people are those of :mod:`lakebed.model.type_names`. Pure: no I/O.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakebed.errors import Code, UsageError
from lakebed.model.checks import shown
from lakebed.model.key_types import key_type
from lakebed.model.type_names import JSON, UUID, name_of, parse_name

_INTEGERS = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_FLOATS = ("halffloat", "float", "double")
_UNITS = ("s", "ms", "us", "ns")

HIDDEN_PREFIX = "__lakebed_"
"""The prefix of the names of hidden columns (:mod:`lakebed.model.row_kinds`)."""

WIDENING = (_INTEGERS, _UNSIGNED, ("float", "double"))
"""A value field may be widened to any type further right in the row that has its own; a decimal, to one of more digits
with the same scale. Integers are not widened to floats, since float64 does not represent every int64, and no type is
widened to text."""


def parse(kind: Any) -> pa.DataType:
    """Return the type of a field (:func:`of_field`) from an Arrow type or its name. Raises UsageError."""
    if isinstance(kind, pa.DataType):
        try:
            return of_field(kind)
        except RecursionError:
            raise Code.TYPE_UNSUPPORTED("a type is nested too deeply", levels_max=NESTING_MAX) from None
    if isinstance(kind, str):
        return of_field(parse_name(kind.strip()))
    raise Code.TYPE_INVALID(
        f"not a type: {shown(kind)}; give an Arrow type or a name such as 'int64' or 'timestamp[us, tz=UTC]'"
    )


def to_json(kind: pa.DataType) -> Any:
    """Return the JSON form of a type; :func:`from_json` is the inverse."""
    if pa.types.is_dictionary(kind):
        return {"dictionary": to_json(kind.value_type)}
    if pa.types.is_list(kind):
        return {"list": to_json(kind.value_type)}
    if pa.types.is_fixed_size_list(kind):
        return {"fixed_size_list": [to_json(kind.value_type), kind.list_size]}
    if pa.types.is_struct(kind):
        return {"struct": [[f.name, to_json(f.type), f.nullable] for f in kind]}
    if pa.types.is_map(kind):
        return {"map": [to_json(kind.key_type), to_json(kind.item_type)]}
    return name_of(kind) if kind in (UUID, JSON) else str(kind)


def from_json(document: Any) -> pa.DataType:
    """Return the type of a JSON form. Raises UsageError if it is malformed."""
    match document:
        case {"list": item}:
            return pa.list_(from_json(item))
        case {"fixed_size_list": [item, int(length)]}:
            return pa.list_(from_json(item), length)
        case {"struct": members}:
            return pa.struct([pa.field(name, from_json(kind), nullable) for name, kind, nullable in members])
        case {"map": [key, item]}:
            return pa.map_(from_json(key), from_json(item))
        case {"dictionary": values}:
            return of_field(pa.dictionary(INDEX, from_json(values)))
        case _:
            return parse(document)


def canonical(kind: pa.DataType) -> pa.DataType:
    """Return the stored type for a type: one layout for text, bytes and lists of any length, no dictionaries."""
    if pa.types.is_dictionary(kind):
        return canonical(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, pa.JsonType):
        return JSON
    if is_list(kind) and not pa.types.is_fixed_size_list(kind):
        return pa.list_(canonical(kind.value_type))
    return with_inner(kind, canonical)


_NESTED: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (pa.types.is_map, lambda kind, inner: pa.map_(inner(kind.key_type), inner(kind.item_type))),
    (pa.types.is_fixed_size_list, lambda kind, inner: pa.list_(inner(kind.value_type), kind.list_size)),
    (pa.types.is_large_list, lambda kind, inner: pa.large_list(inner(kind.value_type))),
    (pa.types.is_list_view, lambda kind, inner: pa.list_view(inner(kind.value_type))),
    (pa.types.is_large_list_view, lambda kind, inner: pa.large_list_view(inner(kind.value_type))),
    (pa.types.is_list, lambda kind, inner: pa.list_(inner(kind.value_type))),
    (pa.types.is_struct, lambda kind, inner: pa.struct([f.with_type(inner(f.type)) for f in kind])),
    (pa.types.is_dictionary, lambda kind, inner: pa.dictionary(kind.index_type, inner(kind.value_type), kind.ordered)),
)


def with_inner(kind: pa.DataType, inner: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a nested type, or a dictionary, with ``inner`` applied to the types inside; others are unchanged."""
    return next((remade(kind, inner) for is_kind, remade in _NESTED if is_kind(kind)), kind)


def nullable_members(kind: pa.DataType) -> pa.DataType:
    """Return the type with nullable struct members, at any depth: the type of stored values.

    A member that is ``not null`` has no value where its struct is null. Libraries take what is in the buffers there for
    its value, refuse a null there, or conclude that the member is never null; so no array has such a member. That a
    struct has the member is checked when rows enter a table (:func:`lakebed.model.validity.unfilled`).
    """
    return _with_nullable_members(kind) if "not null" in str(kind) else kind


def _with_nullable_members(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        members = [member.with_type(_with_nullable_members(member.type)) for member in kind]
        return pa.struct([member.with_nullable(nullable=True) for member in members])
    return with_inner(kind, _with_nullable_members)


INDEX = pa.int32()
"""The index type of all dictionaries that reads return: that of :meth:`pyarrow.Array.dictionary_encode`."""


def of_field(kind: pa.DataType) -> pa.DataType:
    """Return the field type for values of a type: the canonical one, or a dictionary of it.

    The index type and the order of a dictionary are not kept (docs/decisions/0063). Dictionaries inside other types,
    and of values that some library does not support in a dictionary, become their values.
    """
    plain = canonical(kind)
    if not pa.types.is_dictionary(kind) or plain == UUID or pa.types.is_decimal256(plain) or key_type(plain) is None:
        return plain
    return pa.dictionary(INDEX, plain)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list in any of Arrow's layouts."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


LIST_SIZE_MAX = 65_536
"""Maximum items of a fixed-size list: a null takes as much memory as any other value."""

NESTING_MAX = 30
"""Maximum levels of lists, structs and maps (which count twice) of a new column. The limit of Parquet readers is 100
levels, two for a list; of Arrow's C interface 64, two for a map; and of the schema in Parquet files about 60."""


def check_new_type(name: str, kind: pa.DataType) -> None:
    """Raise UsageError for an Arrow type that some reader or writer of data files does not support."""
    check_value_type(name, kind)
    flaw = _flaw(kind, NESTING_MAX)
    if flaw:
        raise Code.TYPE_UNSUPPORTED(f"column {name} cannot be {str(kind)[:200]}: {flaw}", column=name)


def check_name(name: Any) -> None:
    """Raise UsageError for an invalid name of a column or of a struct's member."""
    if not isinstance(name, str) or not name:
        raise Code.SCHEMA_INVALID(f"not a name for a field: {shown(name)}; give a text that is not empty")
    # C strings end at NUL, plans of the engine at a line end, and UTF-8 has no surrogates.
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in name):
        raise Code.SCHEMA_INVALID(
            f"not a name for a field: {name!a}; leave out control characters, line ends and surrogates"
        )
    if name.startswith(HIDDEN_PREFIX):
        raise Code.SCHEMA_INVALID(
            f"not a name for a field: {name!r}; names that begin with {HIDDEN_PREFIX} are reserved"
        )


def _flaw(kind: pa.DataType, levels: int) -> str | None:
    """Return the fault of a type, at any depth; None if there is none."""
    if pa.types.is_nested(kind) and not levels:
        return f"it is nested deeper than {NESTING_MAX} levels"
    if pa.types.is_struct(kind):
        names = [member.name for member in kind]
        for name in names:
            check_name(name)
        if len(set(names)) != len(names) or not names:
            return "a struct needs members, each with a name of its own"
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        return "the scale of a decimal is from 0 to its precision"
    if pa.types.is_fixed_size_binary(kind) and not kind.byte_width:
        return "it has no bytes"
    if pa.types.is_fixed_size_list(kind) and not 0 < kind.list_size <= LIST_SIZE_MAX:
        return f"a list of a fixed size has 1 to {LIST_SIZE_MAX:,} items"
    if pa.types.is_timestamp(kind) and kind.tz is not None and not kind.tz.isprintable():
        return "its time zone has a name that cannot be"
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return next(filter(None, (_flaw(one, levels - 1) for one in inner)), None)


def check_value_type(name: str, kind: pa.DataType) -> None:
    """Raise UsageError for a type that data files cannot store and return."""
    try:
        known = from_json(to_json(kind)) == kind
    except (UsageError, RecursionError):
        known = False
    if not known:
        raise Code.TYPE_UNSUPPORTED(
            f"column {name} cannot be {str(kind)[:200]}: supported are numbers, text, bytes, times, decimals, "
            "lists, structs, maps and null",
            column=name,
        )


def in_parquet(kind: pa.DataType) -> pa.DataType:
    """Return the type that Parquet returns for a type: Parquet has no seconds, and stores milliseconds instead."""
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_time32(kind):
        return pa.time32("ms")
    return with_inner(kind, in_parquet)


_SAME_BYTES = ((pa.binary(16), UUID), (UUID, pa.binary(16)), (JSON, pa.string()))


def widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast from ``found`` to ``wanted`` keeps every value."""
    if found == wanted or pa.types.is_null(found):
        return True
    found = canonical(found)
    if found == wanted or (found, wanted) in _SAME_BYTES:
        return True
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        same_zone = (found.tz is None) == (wanted.tz is None)
        return same_zone and _UNITS.index(found.unit) <= _UNITS.index(wanted.unit)
    if is_list(found) and is_list(wanted):
        return _lengths_fit(found, wanted) and widens(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return widens(found.key_type, wanted.key_type) and widens(found.item_type, wanted.item_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return [f.name for f in found] == [f.name for f in wanted] and all(
            widens(a.type, b.type) for a, b in zip(found, wanted, strict=True)
        )
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        whole = found.precision - found.scale <= wanted.precision - wanted.scale
        return bool(whole and found.scale <= wanted.scale)
    return _number_widens(str(found), str(wanted))


def member_fault(found: pa.DataType, wanted: pa.DataType) -> str | None:
    """Say which members of a struct are missing, unknown or in another order, at any depth; None if none are."""
    if not pa.types.is_struct(found) or not pa.types.is_struct(wanted):
        inner = min(found.num_fields, wanted.num_fields)
        pairs = [(found.field(index).type, wanted.field(index).type) for index in range(inner)]
        return next(filter(None, (member_fault(a, b) for a, b in pairs)), None)
    given, known = [member.name for member in found], [member.name for member in wanted]
    if missing := [name for name in known if name not in given]:
        return f"whose member {missing[0]} is missing: give it, as null if need be"
    if unknown := [name for name in given if name not in known]:
        return f"which has no member {unknown[0]}: leave it out"
    if given != known:
        return "whose members are in another order: give them in that of the table"
    pairs = [(member.type, wanted.field(member.name).type) for member in found]
    return next(filter(None, (member_fault(a, b) for a, b in pairs)), None)


def exact(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of ``found`` are accepted as ``wanted``, value by value, if each is unchanged.

    Numbers are accepted as another kind of number, and times in another unit: libraries often make an int64 column of
    small numbers, Parquet has no seconds, and Spark has only microseconds. A date is accepted as its first midnight.
    Bytes are accepted as fixed-size if each value has that size. Text is accepted as UUID or JSON if it has that form,
    and never as a number; a time without a zone is never accepted as one with a zone.
    """
    found = canonical(found)
    if (is_number(found) and is_number(wanted)) or (pa.types.is_string(found) and wanted in (UUID, JSON)):
        return True
    if pa.types.is_binary(found) or pa.types.is_binary(wanted):
        return all(pa.types.is_binary(kind) or _is_of_fixed_size(kind) for kind in (found, wanted))
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return (found.tz is None) == (wanted.tz is None)
    if pa.types.is_time(found) and pa.types.is_time(wanted):
        return True
    if is_list(found) and is_list(wanted):
        # Lists of any length are accepted if each has the required length.
        fit = pa.types.is_list(found) or _lengths_fit(found, wanted)
        return fit and _exact_inside(found.value_type, wanted.value_type)
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _exact_inside(found.key_type, wanted.key_type) and _exact_inside(found.item_type, wanted.item_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return [f.name for f in found] == [f.name for f in wanted] and all(
            _exact_inside(a.type, b.type) for a, b in zip(found, wanted, strict=True)
        )
    return _is_day(found) and _is_day(wanted)


def _is_of_fixed_size(kind: pa.DataType) -> bool:
    """Return whether a type has bytes of one size, as a UUID."""
    return bool(kind == UUID or pa.types.is_fixed_size_binary(kind))


def _lengths_fit(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether every list of ``found`` has a length that ``wanted`` allows."""
    if not pa.types.is_fixed_size_list(wanted):
        return True
    return bool(pa.types.is_fixed_size_list(found) and found.list_size == wanted.list_size)


def _exact_inside(found: pa.DataType, wanted: pa.DataType) -> bool:
    """As :func:`exact`, for values in others: Arrow itself refuses casts to integers, or to another unit of time, that
    do not hold each value.
    """
    found = canonical(found)
    integers = pa.types.is_integer(wanted) and (pa.types.is_integer(found) or pa.types.is_floating(found))
    times = (pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted)) or pa.types.is_time(found)
    return widens(found, wanted) or integers or ((times or pa.types.is_nested(found)) and exact(found, wanted))


def _is_day(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))


def castable(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of ``found`` may be cast to ``wanted`` on request, if each value is unchanged.

    Besides :func:`exact` casts, text is parsed as any plain type; whole numbers, decimals, booleans and dates are
    formatted as text; and a time without a zone is read as UTC.
    """
    found = canonical(found)
    if pa.types.is_string(found):
        bytes_only = pa.types.is_fixed_size_binary(wanted)
        return exact(found, wanted) or is_number(wanted) or (key_type(wanted) is not None and not bytes_only)
    if pa.types.is_string(wanted):
        plain = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_date32)
        return found == UUID or any(is_kind(found) for is_kind in plain)
    times = pa.types.is_timestamp(wanted) and (pa.types.is_timestamp(found) or pa.types.is_date32(found))
    return bool(times or exact(found, wanted))


def is_untyped(kind: pa.DataType) -> bool:
    """Return whether a type is null at some depth, because no other value occurred there."""
    return bool(pa.types.is_null(kind) or any(is_untyped(kind.field(index).type) for index in range(kind.num_fields)))


def is_number(kind: pa.DataType) -> bool:
    """Return whether a type is an integer, a float or a decimal."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is text, in any form of Arrow."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a type is bytes of any length, in any form of Arrow."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether a type is bytes of any length, in any form of Arrow, or of a fixed length."""
    return is_bytes(kind) or bool(pa.types.is_fixed_size_binary(kind))


def can_become(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a field may be widened from one type to another, or changed to or from a dictionary."""
    if pa.types.is_dictionary(found) or pa.types.is_dictionary(wanted):
        plain = canonical(found), canonical(wanted)
        return found != wanted and (plain[0] == plain[1] or can_become(*plain))
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        return bool(found.id == wanted.id and found.scale == wanted.scale and found.precision < wanted.precision)
    a, b = str(found), str(wanted)
    return any(a in ladder and b in ladder and ladder.index(a) < ladder.index(b) for ladder in WIDENING)


def widest(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return the type that takes the values of two types, each if it is unchanged; None if there is none."""
    plain = canonical(first), canonical(second)
    try:
        wide = (
            pa.unify_schemas([pa.schema([("c", kind)]) for kind in plain], promote_options="permissive").field(0).type
        )
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
    return wide if all(widens(kind, wide) or exact(kind, wide) for kind in plain) else None


def wider_decimals(kind: pa.DataType) -> int | None:
    """Return the least number of digits of the decimals that a field of the type can become; None if none."""
    most = 38 if pa.types.is_decimal128(kind) else 76 if pa.types.is_decimal256(kind) else 0
    return kind.precision + 1 if most and kind.precision < most else None


def _number_widens(found: str, wanted: str) -> bool:
    for ladder in (_INTEGERS, _UNSIGNED, _FLOATS):
        if found in ladder and wanted in ladder:
            return ladder.index(found) <= ladder.index(wanted)
    # An unsigned number needs the next wider signed type.
    return found in _UNSIGNED and wanted in _INTEGERS and _UNSIGNED.index(found) < _INTEGERS.index(wanted)
