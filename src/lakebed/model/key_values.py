"""Converts values of key fields between Python, command line text and the bytes of a key. Pure.

:func:`content_of` converts a user's value to a content, :func:`value_of` does the reverse, and :func:`parse_text`
parses a value from text. Contents are those of :mod:`lakebed.model.key_types`. The encoding of a field is by the rules
of :mod:`lakebed.model.keys`.

Errors: BadKeyError, which names the field and the value.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers
import operator
import re
import struct
from bisect import bisect_right
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.model import type_names
from lakebed.model.checks import shown
from lakebed.model.iso_times import is_expanded, may_expand, times_of_texts
from lakebed.model.key_types import PER_SECOND, Form, decimal_of, unscaled
from lakebed.model.moments import Moment, moment_of
from lakebed.model.type_names import name_of

if TYPE_CHECKING:
    from lakebed.model.key_types import Content
    from lakebed.model.schema import Field

KEY_BYTES_MAX = 8 * 1024
"""Maximum bytes of a key: longer keys would make bounds, log entries and summaries large (1,025 keys: 8 MiB)."""

ESCAPED_ZERO = b"\x00\xff"
"""The encoding of a zero byte of text or bytes, so that none of these contains a terminator."""

TERMINATOR = b"\x00\x01"
"""Follows each field of text or bytes."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1)
_MOMENTS = (dt.date, dt.time, np.datetime64)
_TRUTH = {"true": True, "false": False}
_BEYOND_PYTHON = re.compile(r"^\s*0000-|\.\d{7}")
"""A year, or a fraction of a second, that Python's types do not have, in ISO 8601."""


def content_of(field: Field, value: Any) -> Content:
    """Return the content of a user's value.

    Raises BadKeyError for null, another type, or a value that the field cannot hold.

    An integer is accepted for a date, a time or a timestamp as the column's own number. A value of a float field is
    rounded to the nearest float of its width. A decimal field accepts a float, by its shortest text; a uuid field
    accepts text or 16 bytes.
    """
    if value is None:
        raise Code.KEY_NULL(f"key field {field.name} ({name_of(field.type)}) cannot be null", column=field.name)
    match field.key_type.form:
        case Form.SIGNED | Form.UNSIGNED:
            return _integer(field, value)
        case Form.BOOLEAN:
            if isinstance(value, bool) or type(value).__name__ == "bool_":
                return bool(value)
            raise _wrong_type(field, value)
        case Form.FLOAT:
            return _float(field, value)
        case Form.DECIMAL:
            return _decimal(field, value)
        case Form.BYTES:
            return _fixed_bytes(field, value)
        case Form.TEXT:
            return _key_text(field, value)
        case _:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise _wrong_type(field, value)
            return bytes(value)


def value_of(field: Field, content: Any) -> Any:
    """Return the Python value of a content: a date, a time, a datetime (in UTC if the type has a zone), a UUID, or
    itself.

    Times that Python's types cannot represent are integers: finer than microseconds, or outside of the years 1 to 9999.
    """
    kind = field.type
    try:
        if kind == type_names.UUID:
            return UUID(bytes=content)
        if pa.types.is_date32(kind):
            return _EPOCH_DAY + dt.timedelta(days=content)
        if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
            microseconds, rest = divmod(content * 1_000_000, PER_SECOND[kind.unit])
            since = dt.timedelta(microseconds=microseconds)
            if rest:
                return content
            if pa.types.is_time(kind):
                return (_EPOCH + since).time()
            return (_EPOCH if kind.tz else _EPOCH.replace(tzinfo=None)) + since
    except OverflowError:
        return content
    return content


def parse_text(field: Field, text: str) -> Any:
    """Parse a value from a command line or a URL: a number, text, ``true`` or ``false``, hex digits for bytes, a UUID,
    or an ISO 8601 date or time.
    """
    kind = field.type
    try:
        match field.key_type.form:
            case Form.TEXT:
                return text
            case Form.BOOLEAN:
                return _TRUTH[text.strip().lower()]
            case Form.FLOAT:
                found = float(_number_text(kind, text))
                if math.isinf(found) and any(character.isdigit() for character in text):
                    raise ValueError
                return found
            case Form.DECIMAL:
                return Decimal(_number_text(kind, text))
            case Form.BYTES | Form.BINARY:
                return UUID(text.strip()) if kind == type_names.UUID else bytes.fromhex(text)
            case Form.SIGNED | Form.UNSIGNED:
                return _number_of_text(kind, text)
    except (ValueError, KeyError, InvalidOperation) as error:
        raise Code.KEY_UNPARSABLE(
            f"key field {field.name} is {name_of(kind)}: cannot read {text!r}", column=field.name
        ) from error


def _number_of_text(kind: pa.DataType, text: str) -> Any:
    if may_expand(kind) and (is_expanded(text) or _BEYOND_PYTHON.search(text)):
        return _arrow_number(kind, text.strip())
    if pa.types.is_date32(kind):
        return dt.date.fromisoformat(text)
    if pa.types.is_time(kind):
        return _time_of_text(kind, text)
    if pa.types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(text)
        return moment.replace(tzinfo=dt.UTC) if kind.tz and moment.tzinfo is None else moment
    return int(_number_text(kind, text))


def _number_text(kind: pa.DataType, text: str) -> str:
    """Return the text of a number. Raises ValueError for other forms that Python reads: 1_000, digits of any script."""
    from lakebed.model.text_values import has_form

    bare = text.strip(" \t")
    if not has_form(bare, kind):
        raise ValueError
    return bare


def _arrow_number(kind: pa.DataType, text: str) -> int:
    """Return the column's integer for a date or timestamp that Python's types may lack."""
    try:
        found = times_of_texts(pa.array([text]), kind)
    except pa.ArrowInvalid:
        if not (pa.types.is_timestamp(kind) and kind.tz):
            raise
        found = times_of_texts(pa.array([text]), pa.timestamp(kind.unit))
    number: int = found.view(pa.int64() if kind.bit_width == 64 else pa.int32())[0].as_py()
    return number


def _time_of_text(kind: pa.DataType, text: str) -> Any:
    """Return a time, or the column's integer for one that is finer than Python's."""
    whole, _, fraction = text.partition(".")
    if len(fraction) <= 6 or kind.unit != "ns":
        return dt.time.fromisoformat(text)
    since = dt.datetime.combine(_EPOCH_DAY, dt.time.fromisoformat(whole), dt.UTC) - _EPOCH
    if not fraction.isdecimal() or len(fraction) > 9:
        raise ValueError(text)
    return since.seconds * PER_SECOND["ns"] + int(fraction.ljust(9, "0"))


def _integer(field: Field, value: Any) -> int:
    """Return the integer that the column stores for a user's value of an integer, date, time or timestamp field."""
    if isinstance(value, _MOMENTS):
        return _moment(field, value)
    if isinstance(value, bool):
        raise _wrong_type(field, value)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise _wrong_type(field, value) from error
    if not field.key_type.least <= number <= field.key_type.greatest:
        raise _unfit(field, number)
    return number


def _moment(field: Field, value: dt.date | dt.time | np.datetime64) -> int:
    kind = field.type
    if pa.types.is_timestamp(kind) and isinstance(value, dt.datetime | np.datetime64):
        return _timestamp(field, value)
    if pa.types.is_date32(kind) and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - _EPOCH_DAY).days
    if pa.types.is_time(kind) and isinstance(value, dt.time):
        if value.tzinfo is not None:
            raise Code.KEY_TYPE_MISMATCH(
                f"key field {field.name} is {name_of(kind)} and needs a time without a time zone, not {value!r}",
                column=field.name,
            )
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        since = Moment(seconds * 1_000_000 + value.microsecond, 1_000_000, zoned=False)
        return _in_units(field, value, since)
    raise _wrong_type(field, value)


def _timestamp(field: Field, value: dt.datetime | np.datetime64) -> int:
    moment = moment_of(value)
    if moment is None:
        raise _wrong_type(field, value)
    if moment.zoned == (field.type.tz is None):
        wanted = "a datetime with a time zone" if field.type.tz else "a datetime without a time zone"
        raise Code.KEY_TYPE_MISMATCH(
            f"key field {field.name} is {name_of(field.type)} and needs {wanted}, not {value!r}", column=field.name
        )
    number = _in_units(field, value, moment)
    if not field.key_type.least <= number <= field.key_type.greatest:
        raise _unfit(field, value)
    return number


def _in_units(field: Field, value: Any, moment: Moment) -> int:
    number = moment.in_units(PER_SECOND[field.type.unit])
    if number is None:
        raise Code.KEY_NOT_REPRESENTABLE(
            f"key field {field.name}: {value!r} is finer than {name_of(field.type)}", column=field.name
        )
    return number


def _float(field: Field, value: Any) -> float:
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, numbers.Real):
        raise _wrong_type(field, value)
    try:
        found = float(value)
        if field.width == 4:
            found = struct.unpack("<f", struct.pack("<f", found))[0]
        if isinstance(value, numbers.Integral) and found != int(value):
            raise _unfit(field, value)
    except OverflowError as error:
        raise _unfit(field, value) from error
    return found


def _decimal(field: Field, value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, Decimal | int | float):
        raise _wrong_type(field, value)
    given = Decimal(repr(float(value)) if isinstance(value, float) else value)
    kind = field.type
    if not given.is_finite() or (given and given.adjusted() >= kind.precision - kind.scale):
        raise _unfit(field, value)
    if given and (given.adjusted() < -kind.scale or decimal_of(unscaled(given, kind.scale), kind.scale) != given):
        raise Code.KEY_NOT_REPRESENTABLE(
            f"key field {field.name}: {shown(value)} has more digits than {name_of(kind)}", column=field.name
        )
    return given


def _fixed_bytes(field: Field, value: Any) -> bytes:
    if field.type == type_names.UUID:
        if isinstance(value, UUID):
            return value.bytes
        if isinstance(value, str):
            try:
                return UUID(value).bytes
            except ValueError as error:
                raise Code.KEY_UNPARSABLE(
                    f"key field {field.name} is uuid: cannot read {value!r}", column=field.name
                ) from error
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong_type(field, value)
    found = bytes(value)
    if len(found) != field.width:
        raise Code.KEY_NOT_REPRESENTABLE(
            f"key field {field.name} is {name_of(field.type)}: {shown(found)} has {len(found)} bytes, not "
            f"{field.width}",
            column=field.name,
        )
    return found


def _key_text(field: Field, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong_type(field, value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Code.KEY_NOT_REPRESENTABLE(
            f"key field {field.name}: {shown(value)} holds an unpaired surrogate, which UTF-8 cannot encode",
            column=field.name,
        ) from error
    return value


def _wrong_type(field: Field, value: Any) -> Error:
    several = " (get_many reads several keys)" if isinstance(value, list | tuple | set) else ""
    return Code.KEY_TYPE_MISMATCH(
        f"key field {field.name} is {name_of(field.type)}; {shown(value)} is {type(value).__name__}{several}",
        column=field.name,
    )


def _unfit(field: Field, value: Any) -> Error:
    return Code.KEY_NOT_REPRESENTABLE(
        f"key field {field.name}: {shown(value)} does not fit {name_of(field.type)}", column=field.name
    )


# -- as the bytes of a key --------------------------------------------------------------------------------------------


def least_text(content: bytes, start: int) -> str:
    """Return the least text above bytes that are not UTF-8 from ``start`` on. A boundary may be such a key, from a row
    written before such text was refused (:mod:`lakebed.upkeep.repair`).
    """
    points = range(0x11_0000)
    point = bisect_right(points, content[start:], key=lambda p: chr(p).encode("utf-8", "surrogatepass"))
    text = content[:start].decode("utf-8")
    while point > points[-1] and text:
        point, text = ord(text[-1]) + 1, text[:-1]
    if point > points[-1]:
        return chr(points[-1]) * (KEY_BYTES_MAX // 4)
    return text + chr(0xE000 if 0xD800 <= point < 0xE000 else point)


def decode_content(bound: bytes, position: int) -> tuple[bytes, int, str]:
    """Unescape one text field: return its bytes, the position of the next field, and how it ended."""
    content = bytearray()
    while True:
        zero = bound.find(b"\x00", position)
        if zero < 0:
            content += bound[position:]
            return bytes(content), len(bound), "cut"
        content += bound[position:zero]
        mark = bound[zero + 1 : zero + 2]
        if mark == b"\xff":
            content.append(0)
            position = zero + 2
        elif mark == b"\x01":
            return bytes(content), zero + 2, "terminated"
        else:
            # A final 00 was truncated before its second byte: it lies below every key with this prefix.
            return bytes(content), len(bound), "after" if mark else "cut"


def escape(content: bytes) -> bytes:
    """Return the encoding of text or bytes."""
    return content.replace(b"\x00", ESCAPED_ZERO) + TERMINATOR


def encode_content(field: Field, content: Any) -> bytes:
    """Return a field's part of a key, from its content."""
    return field.key_type.encode(content) if field.width else escape(content)


def encode_value(field: Field, value: Any) -> bytes:
    """Return the encoding of a user's value. Raises BadKeyError if the field cannot have it."""
    content: Any = content_of(field, value)
    if field.width:
        return field.key_type.encode(content)
    return escape(content.encode("utf-8") if field.is_text else content)


def encode_raw(field: Field, scalar: Any) -> bytes:
    """Return the encoding of an Arrow scalar of the field's own type."""
    return encode_content(field, field.key_type.of_scalar(scalar))
