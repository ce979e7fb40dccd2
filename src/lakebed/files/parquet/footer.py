"""Decodes Parquet footers: the row groups of a file, their key bounds, and the byte ranges of their columns.

Core types: :class:`Footer`, :class:`RowGroup`, :class:`Chunk`, :class:`Fences`. PyArrow does not expose the positions
of page indexes. Columns are identified by field id, whatever their names were when the file was written. Statistics of
key columns are whole values, or shortened outwards, so bounds made of them include all keys. Pure: no I/O. Errors:
DamagedError. Source: ``parquet.thrift``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.files.parquet.thrift import BINARY, I32, RAW, decode_struct, integer, items, varint
from lakebed.model.documents import load
from lakebed.model.files import KEY_FILTERS, WIDE_ROW_BYTES
from lakebed.model.key_type import KEY_BYTES_MAX, Content
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.schema import Field, Schema
from lakebed.storage.blocks import KEY as BLOCK_DIGESTS
from lakebed.storage.blocks import BlockList

BEYOND = b"\xff" * (KEY_BYTES_MAX + 1)
"""A byte string above the encoding of every key."""

_TAIL_BYTES = 8  # the footer's length and the magic
_REPEATED = 2


class Chunk(Struct, frozen=True):
    """One flat column of one row group. Byte ranges are (offset, length) in the file; None for a missing part.

    ``element`` and ``head`` are parts of the file's metadata, which the page decoder copies: the schema element, and
    the type, encodings, path and codec of the column.
    """

    element: bytes
    head: bytes
    dictionary: tuple[int, int] | None
    offset_index: tuple[int, int] | None
    column_index: tuple[int, int] | None
    bloom_filter: tuple[int, int] | None


class RowGroup(Struct, frozen=True):
    """One row group: ``size_bytes`` stored, ``content_bytes`` decompressed. ``keys`` includes all of its keys.

    ``start`` is a lower bound of the sort key of its first row, as the values of the leading fields that the statistics
    bound. ``chunks`` has the flat columns by field id; ``key_filter`` is the byte range of a filter over the first
    ``filtered`` fields of its keys, if there is one. ``extents`` has the byte ranges of all columns, also nested ones,
    by field id.
    """

    rows: int
    size_bytes: int
    content_bytes: int
    keys: EncodedRange
    start: tuple[Content, ...]
    chunks: dict[int, Chunk]
    key_filter: tuple[int, int] | None = None
    extents: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    filtered: int = 0


class Fences(Struct, frozen=True):
    """Key bounds of successive parts of a sorted file: part ``i`` has keys in ``[starts[i], ends[i])``.

    Both ascend. Parts may overlap if their bounds have fewer fields than a key.
    """

    starts: tuple[bytes, ...]
    ends: tuple[bytes, ...]

    @classmethod
    def of(cls, parts: Sequence[EncodedRange]) -> Fences:
        """From a range for each part that includes its keys."""
        # The rows ascend, so a lower bound of a part bounds the later ones too, and an upper bound the earlier ones.
        starts = accumulate((part.min for part in parts), max)
        ends = accumulate((BEYOND if part.max is None else part.max for part in reversed(parts)), min)
        return cls(tuple(starts), tuple(ends)[::-1])

    def around(self, key: bytes) -> tuple[int, int]:
        """Return the parts that may have this key, as a half-open range."""
        return bisect_right(self.ends, key), bisect_right(self.starts, key)

    def reaching(self, keys: EncodedRange) -> range:
        """Return the parts that may have keys in the range."""
        high = len(self.starts) if keys.max is None else bisect_left(self.starts, keys.max)
        return range(bisect_right(self.ends, keys.min), high)


class Footer(Struct, frozen=True):
    """The row groups of a file in order, and the names of its columns by field id.

    ``paged`` has the columns that can be read by pages: none if a key column has no page index. ``indexes`` is the byte
    range of all page indexes, ``blocks`` that of the block digests.
    """

    groups: tuple[RowGroup, ...]
    fences: Fences
    names: Mapping[int, str]
    paged: frozenset[int]
    indexes: tuple[int, int] = (0, 0)
    blocks: BlockList | None = None

    @classmethod
    def of(
        cls,
        groups: Sequence[RowGroup],
        names: Mapping[int, str],
        schema: Schema,
        indexes: tuple[int, int] = (0, 0),
        blocks: BlockList | None = None,
    ) -> Footer:
        """Return the footer of a file with these row groups."""
        paged = set(names)
        for group in groups:
            paged &= {field for field, chunk in group.chunks.items() if chunk.offset_index is not None}
            if any(key.id not in paged or group.chunks[key.id].column_index is None for key in schema.row_key):
                paged.clear()
        return cls(tuple(groups), Fences.of([group.keys for group in groups]), names, frozenset(paged), indexes, blocks)

    def gives_pages(self, fields: Iterable[Field]) -> bool:
        """Return whether the fields can be read by pages. A field missing in the file is null, and needs no pages."""
        return bool(self.paged) and all(f.id in self.paged or f.id not in self.names for f in fields)

    def content_bytes_of(self, rows: int) -> int:
        """Return the decompressed size of this many rows, if they are as wide as those of the widest row group."""
        return rows * max((group.content_bytes // max(1, group.rows) for group in self.groups), default=0)

    @property
    def is_wide(self) -> bool:
        """Whether some row group has rows too wide for the engine (see :mod:`lakebed.read.rows.datafusion_scan`)."""
        return any(group.content_bytes >= WIDE_ROW_BYTES * group.rows > 0 for group in self.groups)

    def byte_ranges_of(self, numbers: Iterable[int], groups: Iterable[RowGroup] | None = None) -> list[tuple[int, int]]:
        """Return the byte ranges of some columns, by field id, in some row groups (None: all), and of page indexes."""
        wanted = list(numbers)
        among = self.groups if groups is None else groups
        return [
            self.indexes,
            *(byte_range for group in among for number in wanted for byte_range in group.extents.get(number, ())),
        ]


def read_footer(footer: bytes, schema: Schema, url: str, size_bytes: int | None = None) -> Footer:
    """Decode the end of a file. Raises DamagedError naming the file if it is no footer.

    Only the ids and types of key fields of the schema are used, which are the same in all schemas of a table. Without
    the size of the file its block digests are ignored.
    """
    try:
        metadata = decode_struct(footer[:-_TAIL_BYTES])
        columns = list(_columns_with_leaves(metadata[2]))
        names = {element[9]: element[4].decode("utf-8") for element, _ in columns}
        leaves = [(element[9], leaf) for element, parts in columns for leaf in parts]
        metadata_pairs = {pair[1]: pair[2] for pair in metadata.get(5, ()) if 2 in pair}
        listed = _blocks(metadata_pairs)
        if listed is not None and size_bytes is not None and not listed.fits(size_bytes, len(footer)):
            # Another program wrote this file, and copied the metadata of the file that it read.
            listed, metadata_pairs = None, {}
        filtered, filters = _key_filters(metadata_pairs, schema)
        groups = [
            _row_group(group, leaves, schema, filtered, byte_range)
            for group, byte_range in zip(metadata[4], filters or [None] * len(metadata[4]), strict=True)
        ]
        indexes = _indexes(metadata[4])
        return Footer.of(groups, names, schema, indexes, None if size_bytes is None else listed)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Code.DATA_FILE_DAMAGED(
            f"{url} is damaged: its footer cannot be read ({error}); restore it", name=url
        ) from error


def _columns_with_leaves(
    elements: Sequence[dict[int, Any]],
) -> Iterator[tuple[dict[int, Any], list[dict[int, Any] | None]]]:
    """Return each column's schema element, and those of its leaves: itself, or None for leaves of nested columns."""
    position = 1
    for _ in range(elements[0][5]):
        element = elements[position]
        if 5 not in element and element.get(3) != _REPEATED:
            yield element, [element]
            position += 1
            continue
        pending = 1
        parts = 0
        while pending:
            children = elements[position].get(5, 0)
            parts += not children
            pending += children - 1
            position += 1
        yield element, [None] * parts


def _key_filters(metadata_pairs: Mapping[bytes, bytes], schema: Schema) -> tuple[int, list[tuple[int, int] | None]]:
    """Return how many first fields of the row key filters are over, 0 without any, and their byte ranges by row group.

    An attached file may come from a table whose keys are of other fields: its filters are none.
    """
    if KEY_FILTERS.encode() not in metadata_pairs:
        return 0, []
    filters = load(metadata_pairs[KEY_FILTERS.encode()])
    fields = filters["fields"]
    if fields != [field.id for field in schema.row_key[: len(fields)]]:
        return 0, []
    return len(fields), [(int(offset), int(length)) for offset, length in filters["byte_ranges"]]


def _blocks(metadata_pairs: Mapping[bytes, bytes]) -> BlockList | None:
    text = metadata_pairs.get(BLOCK_DIGESTS.encode())
    return None if text is None else BlockList.parse(text)


def _indexes(groups: Sequence[dict[int, Any]]) -> tuple[int, int]:
    """Return the range from the first to the last page index of the file."""
    columns = [column for group in groups for column in group[1]]
    byte_ranges = [
        byte_range
        for column in columns
        for byte_range in (_byte_range(column, 4, 5), _byte_range(column, 6, 7))
        if byte_range
    ]
    begin = min((offset for offset, _ in byte_ranges), default=0)
    return begin, max((offset + length for offset, length in byte_ranges), default=0) - begin


def _row_group(
    group: dict[int, Any],
    leaves: Sequence[tuple[int, dict[int, Any] | None]],
    schema: Schema,
    filtered: int,
    key_filter: tuple[int, int] | None,
) -> RowGroup:
    chunks: dict[int, Chunk] = {}
    statistics: dict[int, dict[int, Any]] = {}
    fields = (*schema.row_key, *schema.sort_key)
    kinds = {field.id: field.key_type.physical for field in fields}
    extents: dict[int, list[tuple[int, int]]] = {}
    for (number, leaf), column in zip(leaves, group[1], strict=True):
        head = column[3]
        begin = min(head[9], head.get(11) or head[9])
        extents.setdefault(number, []).append((begin, head[7]))
        if leaf is None:
            continue
        kind = head[1]
        chunks[number], statistics[number] = _chunk(leaf[RAW], column), column[3].get(12, {})
        if kind != kinds.get(number, kind):
            # Statistics of other physical types, such as INT96 in attached files, cannot be compared here.
            chunks[number] = replace(chunks[number], column_index=None, bloom_filter=None)
            statistics[number] = {}
    bounds = [
        _bounds_of_statistics(field, statistics[field.id].get(6), statistics[field.id].get(5)) for field in fields
    ]
    size_bytes = sum(column[3][7] for column in group[1])
    content_bytes = sum(column[3][6] for column in group[1])
    keys = _key_bounds(schema, bounds)
    start = _leading(bounds)[0]
    return RowGroup(group[3], size_bytes, content_bytes, keys, start, chunks, key_filter, extents, filtered)


def _chunk(element: bytes, column: dict[int, Any]) -> Chunk:
    head = column[3]
    dictionary = head.get(11)
    return Chunk(
        element=element,
        head=_head(head[1], tuple(head[2]), tuple(head[3]), head[4]),
        dictionary=None if not dictionary else (dictionary, head[9] - dictionary),
        offset_index=_byte_range(column, 4, 5),
        column_index=_byte_range(column, 6, 7),
        bloom_filter=_byte_range(head, 14, 15),
    )


@lru_cache(maxsize=4096)
def _head(kind: int, encodings: tuple[int, ...], path: tuple[bytes, ...], codec: int) -> bytes:
    """Cached, because it is the same for a column of all files with the same layout."""
    return (
        integer(1, kind, bits=32)
        + items(1, I32, len(encodings), b"".join(varint(encoding << 1) for encoding in encodings))
        + items(1, BINARY, len(path), b"".join(varint(len(name)) + name for name in path))
        + integer(1, codec, bits=32)
    )


def _byte_range(fields: dict[int, Any], offset: int, length: int) -> tuple[int, int] | None:
    return (fields[offset], fields[length]) if offset in fields and length in fields else None


def _bounds_of_statistics(field: Field, low: bytes | None, high: bytes | None) -> tuple[Content, Content] | None:
    return None if low is None or high is None else (field.key_type.of_plain(low), field.key_type.of_plain(high))


def encode_plain(field: Field, data: bytes) -> bytes:
    """Return the part of an encoded key that is a field's, from Parquet's plain encoding of its value."""
    return field.key_type.encode(field.key_type.of_plain(data) if field.width else data)


def _leading(bounds: Sequence[tuple[Content, Content] | None]) -> tuple[tuple[Content, ...], tuple[Content, ...]]:
    """Return lower and upper bounds of sorted rows, as values of leading fields, from the bounds of each column.

    They end with the first field that varies: the minimum of the next field need not be in the first row.
    """
    lows: list[Content] = []
    highs: list[Content] = []
    for bound in bounds:
        if bound is None:
            break
        lows.append(bound[0])
        highs.append(bound[1])
        if bound[0] != bound[1]:
            break
    return tuple(lows), tuple(highs)


def _key_bounds(schema: Schema, bounds: Sequence[tuple[Content, Content] | None]) -> EncodedRange:
    """Return a range that includes the keys of sorted rows, from the bounds of each row key column."""
    lows, highs = _leading(bounds[: len(schema.row_key)])
    return EncodedRange(schema.codec.encode(lows), successor(schema.codec.encode(highs)) if highs else None)
