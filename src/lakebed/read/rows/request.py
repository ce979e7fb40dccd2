"""Read requests: which keys, columns and rows a read, or a part of it, is for.

Core types: :class:`ReadRequest`, :class:`Point`, :class:`KeyList`. A scan has one request for the whole read. The
reader derives a request for each part of the table (:func:`parts`), with its key range and the remaining limit. Pure:
no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from lakebed.files.parquet.bloom_filters import HashedKey, HashedKeys
from lakebed.files.parquet.read_cache import ReadStatistics
from lakebed.model.key_types import Content
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.schema import Field, Schema
from lakebed.read.rows.plan import at, successive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakebed.engine.predicate import Predicate
    from lakebed.model.files import DataFile
    from lakebed.read.rows.plan import QueryPlan


class Point(Struct, frozen=True):
    """One whole row key: encoded, as values of its fields as columns hold them, and hashed for filters."""

    key: bytes
    values: tuple[Content, ...]
    hashed: HashedKey


def point_of(schema: Schema, keys: EncodedRange) -> Point | None:
    """Return the key of a range that holds a single key; None for any other range."""
    if keys.max is None or keys.max != successor(keys.min):
        return None
    fields = schema.row_key
    bound = schema.codec.decode_bound(keys.min)
    # A shortened bound decodes like the key that it is a prefix of.
    if len(bound.values) < len(fields) or bound.after or schema.codec.encode(bound.values) != keys.min:
        return None
    return Point(keys.min, bound.values, HashedKey(fields, bound.values, keys.min))


class KeyList(Struct, frozen=True):
    """Many row keys: encoded and ascending, as columns of their values, and hashed for filters."""

    encoded: Sequence[bytes]
    values: pa.RecordBatch
    hashed: HashedKeys

    @classmethod
    def of(cls, schema: Schema, encoded: Sequence[bytes]) -> KeyList:
        """Of encoded keys of the schema."""
        values = schema.codec.decode_columns(encoded)
        return cls(encoded, values, HashedKeys(schema.row_key, values, encoded))


class ReadRequest(Struct, frozen=True):
    """At most ``limit`` rows with keys in a range, as rows of the schema, with the columns ``names``.

    ``point`` is set if the range is a single key, ``among`` if only the keys of a list are requested. Rows for which
    ``where`` is not true are left out and do not count for the limit. With ``reverse`` the last row comes first.
    Rows of overlapping files are merged by ``merge``; below the merge, ``schema`` is the merge schema of the schema
    ``merged_as``. ``statistics`` counts the work of the read.
    """

    schema: Schema
    keys: EncodedRange
    names: tuple[str, ...]
    limit: int | None = None
    where: Predicate | None = None
    point: Point | None = None
    reverse: bool = False
    statistics: ReadStatistics = field(default_factory=ReadStatistics)
    among: KeyList | None = None
    merge: MergeMode = KEEP_ALL
    merged_as: Schema | None = None

    def before_where(self) -> ReadRequest:
        """Return the request without its predicate and limit, with the columns that the predicate needs."""
        assert self.where is not None
        return replace(self, names=(*self.names, *self.where.columns), limit=None, where=None)

    def arrow(self) -> pa.Schema:
        """Return the Arrow schema of the requested columns, each once."""
        return self.schema.arrow_of(dict.fromkeys(self.names))

    def fields(self, *, with_keys: bool) -> list[Field]:
        """Return the fields to read, each once; with keys, the fields of the sort order come first."""
        first = self.schema.sort_names if with_keys else ()
        names = dict.fromkeys((*first, *self.names, *(() if self.where is None else self.where.columns)))
        return [self.schema.by_name[name] for name in names]


def parts(plan: QueryPlan, *, reverse: bool) -> Iterator[tuple[EncodedRange, Point | None, tuple[DataFile, ...]]]:
    """Return the parts of a plan in reading order: a key range, its key if it has only one, and overlapping files."""
    for partition in reversed(plan.partitions) if reverse else plan.partitions:
        for keys in reversed(partition.ranges) if reverse else partition.ranges:
            point = point_of(plan.schema, keys)
            found = successive(partition.files, keys) if point is None else at(partition.files, keys)
            for part, files in reversed(list(found)) if reverse else found:
                yield part, point, files
