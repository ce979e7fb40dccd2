"""Read requests: which keys, columns and rows a read, or a part of it, is for.

Core types: :class:`ReadRequest`, :class:`ReadLimits`, :class:`Point`, :class:`KeyList`. A scan has one request for the
whole read. The reader derives a request for each part of the table (:func:`parts`), with its key range and the
remaining limit. Pure: no I/O.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from lakebed.files.parquet.bloom_filters import HashedKey, HashedKeys
from lakebed.files.parquet.read_cache import ReadStatistics
from lakebed.model.key_type import Content
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.schema import Field, Schema
from lakebed.read.rows.plan import at, successive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lakebed.engine.predicate import Predicate
    from lakebed.model.files import DataFile
    from lakebed.read.rows.page_bounds import BoundedColumns
    from lakebed.read.rows.plan import QueryPlan


class Point(Struct, frozen=True):
    """One whole row key, or the first fields of one: encoded, as values of fields as columns hold them, and hashed for
    filters. Keys with these values end before ``end``.
    """

    key: bytes
    end: bytes | None
    values: tuple[Content, ...]
    hashed: HashedKey


def point_of(schema: Schema, keys: EncodedRange) -> Point | None:
    """Return the key of a range that holds a single key; None for any other range."""
    beginning = beginning_of(schema, keys)
    return beginning if beginning is not None and len(beginning.values) == len(schema.row_key) else None


def beginning_of(schema: Schema, keys: EncodedRange) -> Point | None:
    """Return the first fields of the keys of a range that holds all keys that begin so; None for any other range."""
    if keys.max is None or keys.max != successor(keys.min):
        return None
    bound = schema.codec.decode_bound(keys.min)
    # A shortened bound decodes like the key that it is a prefix of.
    if not bound.values or bound.after or schema.codec.encode(bound.values) != keys.min:
        return None
    return Point(keys.min, keys.max, bound.values, HashedKey(schema.row_key, bound.values, keys))


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


class ReadLimits(Struct, frozen=True):
    """How much one step of a read takes at once: bounds of memory, and the sizes from which another way is faster."""

    page_rows: int = 32_768
    page_bytes: int = 8 * 1024 * 1024
    """The most rows and decompressed bytes of the pages of one read by pages."""

    share_files: int = 8
    """The files that share these two; more files have multiples of them. Each file decodes up to a page too many at
    both ends, 2,000 rows, and the engine plans for one or two milliseconds per file, several times the cost of a page.
    """

    shares_max: int = 16
    """The most multiples of them: 128 MiB."""

    fan_in: int = 40
    """The files that are merged at once: each input holds about 2.5 MiB and eight batches of 8,192 rows, so that 40,
    with 100 bytes a row, take 0.35 GiB."""

    files_at_once: int = 256
    """Files that one batch of a multi-get holds open."""

    point_bytes: int = 128 * 1024
    """About the bytes of pages and indexes that are fetched for one key of a file on a store."""

    multi_get_rows: int = 65_536
    """The decoded rows of a batch of a multi-get: about 8 ms of work, against 0.5 ms that a batch costs."""

    held_share: int = 4
    """The part of the memory limit that a slice of a reverse scan may hold; rows beyond it go to local disk."""

    slice_bytes: int = 8 * 1024 * 1024
    """The size of a slice of a key range: planning one takes about 2 ms, decoding it 40 ms or more."""

    slice_file_bytes: int = 2 * 1024 * 1024
    """Its size for each file: each decodes up to a page too many at both ends of a slice, about 0.05 MB or 2.5%."""

    last_slice_bytes: int = 128 * 1024
    """The size of the first slice from the end, for callers that want a few rows; each following one doubles it."""

    narrowed_rows: int = 4_096
    """The rows between two ranges in which rows may pass that are read rather than skipped: one more range takes 0.4 ms
    or more. Fewer rows are not narrowed."""

    narrowed_bytes: int = 1024 * 1024
    """The bytes of stored rows that one more range costs: on a store a round trip, 10 ms at 100 MB/s, between two
    ranges; of local files the CPU of a scan of these rows, about 0.5 ms, over all ranges."""

    narrowed_share: float = 0.5
    """A read of more of the rows is not narrowed: reading all of them at once costs less than many ranges do."""

    copied_share: float = 0.125
    """The same for an engine that reads files on a store by itself, for which the rows are written to a local file."""

    scan_bytes: int = 8 * 1024 * 1024
    """The decoded rows of a slice of a sequential scan: it costs one millisecond besides decoding, which takes 15."""

    scan_first_rows: int = 8_192
    """The rows of the first slice of a sequential scan; each following one has at most twice as many."""

    prefix_pages: int = 64
    """Pages that a prefix scan decodes together: 128,000 rows of key columns, with the default ``page_rows``."""

    prefix_skipped: int = 8
    """The number of pages that take as long to decode, along with others, as one page by itself does."""

    feed_rows_a_key: int = 16
    """Rows that a change feed reads and compares in the time in which it looks up one key of many in both states."""

    merged_rows_a_key: int = 16
    """Rows whose keys are merged in the time in which one key of a file is looked up in the others, to find which rows
    of files are hidden."""

    feed_keys: int = 8192
    feed_keys_bytes: int = 16 * 1024 * 1024
    """The keys that a change feed looks up at once, and about the bytes of their rows."""

    rows_a_contested_key: int = 8
    """The rows of large files that are joined instead of merged in the time that a contested key costs: it is in a hash
    table twice, and its rows are merged."""

    contested_rows_min: int = 100_000
    """Fewer rows are merged in the time in which the joins are planned."""

    contested_bytes: int = 8 * 1024 * 1024
    """The most bytes of contested keys; the hash tables of them are several times as large."""

    kept_rows_bytes: int = 16 * 1024 * 1024
    """The columns of a file that reads by other fields search are kept if they are as many decoded bytes at most."""

    merged_alone: int = 4
    """Batches that are merged before a thread is started to read ahead: small reads have no more."""


LIMITS = ReadLimits()


class ReadRequest(Struct, frozen=True):
    """At most ``limit`` rows with keys in a range, as rows of the schema, with the columns ``names``.

    ``point`` is set if the range is a single key, ``key_list`` if only the keys of a list are requested. Rows for which
    ``where`` is not true are left out and do not count for the limit; ``bounded`` are ranges of columns, one of which
    each row that is needed has, and rows whose key is not ``contested`` may be left out. With ``reverse`` the last row
    comes first. Rows of overlapping files are merged by ``merge``; below the merge, ``schema`` is the merge schema of
    the schema ``merged_as``. ``statistics`` counts the work of the read, ``limits`` bounds it.
    """

    schema: Schema
    keys: EncodedRange
    names: tuple[str, ...]
    limit: int | None = None
    where: Predicate | None = None
    point: Point | None = None
    reverse: bool = False
    statistics: ReadStatistics = field(default_factory=ReadStatistics)
    key_list: KeyList | None = None
    merge: MergeMode = KEEP_ALL
    merged_as: Schema | None = None
    limits: ReadLimits = LIMITS
    bounded: BoundedColumns | None = None
    contested: pa.Table | None = None

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
