"""Types as SQL names them: ``BIGINT``, ``VARCHAR(20)``, ``TIMESTAMP WITH TIME ZONE``, ``INT[]``. Pure.

Any other name is one of :mod:`lakebed.model.type_names`, such as ``list<string>``. The length of a text is read, and
not checked against values. Core. :func:`type_of_words`. Errors. UsageError.
"""

from __future__ import annotations

import re

import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.model.type_names import parse_name

_PLAIN = {
    "boolean": pa.bool_(), "bool": pa.bool_(),
    "tinyint": pa.int8(), "smallint": pa.int16(), "int2": pa.int16(), "integer": pa.int32(), "int": pa.int32(),
    "int4": pa.int32(), "bigint": pa.int64(), "tinyint unsigned": pa.uint8(), "smallint unsigned": pa.uint16(),
    "int unsigned": pa.uint32(), "integer unsigned": pa.uint32(), "bigint unsigned": pa.uint64(),
    "real": pa.float32(), "float4": pa.float32(), "float": pa.float32(), "float8": pa.float64(),
    "double": pa.float64(), "double precision": pa.float64(),
    "varchar": pa.string(), "char": pa.string(), "character": pa.string(), "character varying": pa.string(),
    "text": pa.string(), "clob": pa.string(),
    "bytea": pa.binary(), "blob": pa.binary(), "varbinary": pa.binary(),
    "date": pa.date32(), "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"), "time": pa.time64("us"),
}  # fmt: skip
"""As in a CAST of the engine: INT has 32 bits, and FLOAT too."""

_UNITS = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_LENGTH = re.compile(r"(.*?)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)\s*(.*)", re.DOTALL)
_LENGTHS = ("varchar", "char", "character", "character varying", "varbinary")


def type_of_words(text: str) -> pa.DataType:
    """Return the type of this name. Raises UsageError if there is none."""
    words = " ".join(text.split())
    if words.endswith("[]"):
        return pa.list_(type_of_words(words[:-2]))
    if (found := _of_sql(words.lower())) is not None:
        return found
    try:
        return parse_name(words if "<" in words or "[" in words else words.lower())
    except Error as error:
        raise Code.TYPE_UNSUPPORTED(
            f"no type {words[:60]!r}: write one of SQL, such as BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE, TIMESTAMP, "
            f"DECIMAL(10, 2) or BIGINT[], or of `lakebed docs schemas`, such as uuid or list<string>"
        ) from error


def _of_sql(words: str) -> pa.DataType | None:
    zoned = False
    for suffix, is_zoned in ((" with time zone", True), (" without time zone", False)):
        if words.endswith(suffix):
            words, zoned = words.removesuffix(suffix), is_zoned
    sized = _LENGTH.fullmatch(words)
    name = words if sized is None else f"{sized[1]} {sized[4]}".strip()
    sizes = () if sized is None else tuple(int(one) for one in sized.group(2, 3) if one is not None)
    if name in ("decimal", "numeric"):
        digits, scale = (*sizes, 0)[:2] if sizes else (38, 10)
        kind = pa.decimal128 if digits <= 38 else pa.decimal256
        return kind(digits, scale) if 0 < digits <= 76 and scale <= digits else None
    if name in ("timestamp", "timestamptz", "time", "datetime"):
        unit = _UNITS.get(sizes[0] if sizes else 6)
        if unit is None or len(sizes) > 1 or (zoned and name == "time"):
            return None
        if name == "time":
            return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
        return pa.timestamp(unit, "UTC" if zoned or name == "timestamptz" else None)
    if zoned or (sizes and name not in _LENGTHS) or len(sizes) > 1:
        return None
    return _PLAIN.get(name)
