"""Types of columns: those of Lakebed that SQLAlchemy does not have, and the type of each of Arrow's.

A type here is a class of SQLAlchemy's with the name that Lakebed has for it, so that a reflected table is created again
with the same types. Core. :func:`type_of`. Source: docs/types.md.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from sqlalchemy import types

from lakebed import sql_literal
from lakebed.model.type_names import JSON, name_of, parse_name


class _Named:
    """A type that is written into statements by its name."""

    __visit_name__ = "lakebed_named"

    @property
    def lakebed_name(self) -> str:
        """The name, in CREATE TABLE."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self.lakebed_name


class TINYINT(_Named, types.SmallInteger):
    """Whole numbers of 8 bits."""

    __visit_name__ = "lakebed_named"
    lakebed_name = "TINYINT"


class UNSIGNED(_Named, types.Integer):
    """Whole numbers from 0, of 8, 16, 32 or 64 bits."""

    __visit_name__ = "lakebed_named"

    def __init__(self, bits: int = 64) -> None:
        if bits not in _UNSIGNED:
            raise ValueError(f"bits = {bits!r}: must be one of {', '.join(map(str, _UNSIGNED))}")
        self.bits = bits

    @property
    def lakebed_name(self) -> str:
        """The name, in CREATE TABLE and in a cast."""
        return f"{_UNSIGNED[self.bits]} UNSIGNED"


_UNSIGNED = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}


class FIXED_BINARY(_Named, types.LargeBinary):  # noqa: N801 - as SQLAlchemy names types of SQL
    """Bytes of one length."""

    __visit_name__ = "lakebed_named"

    def __init__(self, length: int) -> None:
        super().__init__(length)

    @property
    def lakebed_name(self) -> str:
        """The name, in CREATE TABLE."""
        return f"fixed_size_binary[{self.length}]"


class TIMESTAMP(_Named, types.TIMESTAMP):
    """Times in a unit, ``s``, ``ms``, ``us`` or ``ns``, and in a zone; ``zone`` is None for times without one.

    Python has no nanoseconds: a row with a time that needs them cannot be fetched.
    """

    __visit_name__ = "lakebed_named"

    def __init__(self, unit: str = "us", zone: str | None = None) -> None:
        super().__init__(timezone=zone is not None)
        self.unit, self.zone = unit, zone

    @property
    def lakebed_name(self) -> str:
        """The name, in CREATE TABLE."""
        return f"timestamp[{self.unit}{'' if self.zone is None else f', tz={self.zone}'}]"


class TIME(_Named, types.TIME):
    """Times of day in a unit, ``s``, ``ms``, ``us`` or ``ns``."""

    __visit_name__ = "lakebed_named"

    def __init__(self, unit: str = "us") -> None:
        super().__init__()
        self.unit = unit

    @property
    def lakebed_name(self) -> str:
        """The name, in CREATE TABLE."""
        return f"time{32 if self.unit in ('s', 'ms') else 64}[{self.unit}]"


class CATEGORY(_Named, types.String):
    """Texts of which few are distinct."""

    __visit_name__ = "lakebed_named"
    lakebed_name = "dictionary<string>"


class VECTOR(_Named, types.ARRAY):
    """Lists of one length, such as embeddings."""

    __visit_name__ = "lakebed_named"

    def __init__(self, item_type: Any = types.REAL, length: int = 1) -> None:
        super().__init__(item_type, dimensions=1)
        self.length = length

    @property
    def lakebed_name(self) -> str:
        """The name, in CREATE TABLE."""
        return f"fixed_size_list<{_name(self.item_type)}>[{self.length}]"


class NAMED(_Named, types.TypeEngine):
    """Any other type, by its name: ``NAMED("struct<x: double, y: double>")``. Structs are dicts in Python."""

    __visit_name__ = "lakebed_named"

    def __init__(self, name: str) -> None:
        self.name = name_of(parse_name(name))

    @property
    def lakebed_name(self) -> str:
        """The name, in CREATE TABLE."""
        return self.name

    def literal_processor(self, dialect: Any) -> Any:
        """Return what makes a literal."""
        return sql_literal


Uuid: Any = getattr(types, "Uuid", None) or type("Uuid", (types.TypeEngine,), {})
"""SQLAlchemy's type, which 1.4 has not: there no column has this class, and UUIDs are ``NAMED("uuid")``."""


class ExactNumeric(types.Numeric):
    """Decimals, whose values may be given as floats: the rows of one INSERT have one type."""

    def bind_processor(self, dialect: Any) -> Any:
        """Return what makes a decimal of a float, by its shortest text."""
        return _exact

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        """Return what makes a decimal of a float, such as the value of 5.52 / 2.4 in SQL."""
        return _exact if self.asdecimal else super().result_processor(dialect, coltype)


def _exact(value: Any) -> Any:
    return Decimal(repr(value)) if isinstance(value, float) else value


class BinaryFloat(types.Float):
    """Floats, whose values may be given as decimals."""

    def bind_processor(self, dialect: Any) -> Any:
        """Return what makes a float of a decimal."""
        return lambda value: float(value) if isinstance(value, Decimal) else value


class CanonicalUuid(Uuid):
    """UUIDs, whose values may be given as text in any form."""

    def bind_processor(self, dialect: Any) -> Any:
        """Return what makes a UUID of a text."""
        if not self.native_uuid:
            return super().bind_processor(dialect)
        return lambda value: UUID(value) if isinstance(value, str) else value

    def literal_processor(self, dialect: Any) -> Any:
        """Return what makes a literal, in the form that Lakebed compares."""
        if not self.native_uuid:
            return super().literal_processor(dialect)
        return lambda value: f"'{value if isinstance(value, UUID) else UUID(value)}'"


GENERIC: dict[Any, Any] = {types.Numeric: ExactNumeric, types.Float: BinaryFloat, Uuid: CanonicalUuid}
"""The types here that take the place of SQLAlchemy's."""

_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): types.BOOLEAN,
    pa.int8(): TINYINT,
    pa.int16(): types.SMALLINT,
    pa.int32(): types.INTEGER,
    pa.int64(): types.BIGINT,
    pa.float32(): types.REAL,
    pa.float64(): getattr(types, "DOUBLE", types.FLOAT),
    pa.string(): types.VARCHAR,
    pa.binary(): types.BLOB,
    pa.date32(): types.DATE,
    pa.time64("us"): types.TIME,
    pa.timestamp("us"): types.TIMESTAMP,
    JSON: types.JSON,
    pa.dictionary(pa.int32(), pa.string()): CATEGORY,
} | ({pa.uuid(): types.UUID} if hasattr(types, "UUID") else {})


def type_of(kind: pa.DataType) -> types.TypeEngine[Any]:
    """Return the type of a column whose reads have this type of Arrow."""
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain()  # type: ignore[no-any-return]
    if pa.types.is_unsigned_integer(kind):
        return UNSIGNED(kind.bit_width)
    if pa.types.is_decimal(kind):
        return types.DECIMAL(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return types.TIMESTAMP(timezone=True) if kind == pa.timestamp("us", "UTC") else TIMESTAMP(kind.unit, kind.tz)
    if pa.types.is_time(kind):
        return TIME(kind.unit)
    if pa.types.is_fixed_size_binary(kind):
        return FIXED_BINARY(kind.byte_width)
    if pa.types.is_fixed_size_list(kind) and not pa.types.is_nested(kind.value_type):
        return VECTOR(type_of(kind.value_type), kind.list_size)
    dimensions, item = 0, kind
    while pa.types.is_list(item):
        dimensions, item = dimensions + 1, item.value_type
    if dimensions and not isinstance(type_of(item), types.ARRAY):
        return types.ARRAY(type_of(item), dimensions=dimensions)
    return NAMED(name_of(kind))


def _name(kind: types.TypeEngine[Any]) -> str:
    """Return the name of an item's type."""
    from lakebed.engine.sql_types import type_of_words
    from sqlalchemy_lakebed.dialect import LakebedDialect

    return name_of(type_of_words(kind.compile(dialect=LakebedDialect())))
