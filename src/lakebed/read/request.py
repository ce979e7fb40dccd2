"""What is read: the keys, columns and rows that one read, or a part of it, is for.

Core types: :class:`ReadRequest`, :class:`Point`, :class:`KeyList`. A scan has one request for the whole read; the
reader narrows it to each part of the table that it reads, with the key range there and the rows that are still wanted.
Pure: no I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.arrays import of_binary
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.schema import Field, Schema
from lakebed.parquet.bloom_filters import Membership, Memberships
from lakebed.parquet.read_cache import ReadStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.engine.predicate import Predicate
    from lakebed.parquet.footer import Value


@dataclass(frozen=True, slots=True)
class Point:
    """One whole row key, encoded, and as a value for each of its fields as the columns hold them."""

    fields: tuple[Field, ...]
    key: bytes
    values: tuple[Value, ...]
    member: Membership

    def scalars(self) -> list[pa.Scalar]:
        """The values as Arrow has them."""
        return [_scalar(field, value) for field, value in zip(self.fields, self.values, strict=True)]


def point_of(schema: Schema, keys: EncodedRange) -> Point | None:
    """The one key that the range holds; None for any other range."""
    if keys.max is None or keys.max != successor(keys.min):
        return None
    fields = schema.row_key
    bound = schema.codec.decode_bound(keys.min)
    # A bound that was cut short decodes like the key that it begins.
    if len(bound.values) < len(fields) or bound.after or schema.codec.encode(bound.values) != keys.min:
        return None
    return Point(fields, keys.min, bound.values, Membership(fields, bound.values, keys.min))


def _scalar(field: Field, value: Value) -> pa.Scalar:
    if isinstance(value, int):
        content = value.to_bytes(field.width, "little", signed=True)
        return pa.Array.from_buffers(field.type, 1, [None, pa.py_buffer(content)])[0]
    return of_binary([value.encode("utf-8") if isinstance(value, str) else value], field.type)[0]


@dataclass(frozen=True, slots=True)
class KeyList:
    """Many row keys: encoded and ascending, as columns of their values, and hashed for filters."""

    encoded: Sequence[bytes]
    values: pa.RecordBatch
    members: Memberships

    @classmethod
    def of(cls, schema: Schema, encoded: Sequence[bytes]) -> KeyList:
        """Of encoded keys of the schema."""
        values = schema.codec.decode_columns(encoded)
        return cls(encoded, values, Memberships(schema.row_key, values, encoded))


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """At most ``limit`` rows with these keys, as rows of the schema with the columns ``names``.

    ``point`` is set if the keys are a single one, ``among`` if they are those of a list. Rows for which ``where`` is
    not true are left out and do not count. With ``reverse`` the last row comes first. The read is counted in
    ``statistics``.
    """

    schema: Schema
    keys: EncodedRange
    names: tuple[str, ...]
    limit: int | None = None
    where: Predicate | None = None
    point: Point | None = None
    reverse: bool = False
    statistics: ReadStatistics = field(default_factory=ReadStatistics, compare=False)
    among: KeyList | None = None

    def before_where(self) -> ReadRequest:
        """The request for all rows, with the columns that the predicate needs as well."""
        assert self.where is not None
        return replace(self, names=(*self.names, *self.where.columns), limit=None, where=None)

    def fields(self, *, with_keys: bool) -> list[Field]:
        """The fields to read, each once; with keys, those by which rows are sorted come first."""
        first = self.schema.sort_names if with_keys else ()
        names = dict.fromkeys((*first, *self.names, *(() if self.where is None else self.where.columns)))
        return [self.schema.by_name[name] for name in names]
