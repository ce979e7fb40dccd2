"""Finds the rows of overlapping files that a merge leaves out, by reading their keys alone.

Files come in the order of arrival. By ``Latest`` all rows of a key but the last are superseded, or by sort key all but
the one with the greatest sort key, and of several of these the last; by ``First`` all but the first. Each file has a
key once. Other modes compute the row of a key that several files have, so there only such keys are found.

There are two ways to gather the rows that compete. :func:`key_rows` reads the keys of all files, slice by slice in key
order, in bounded memory. :func:`competing_rows` looks up the keys of one file in the others: filters exclude row
groups, page indexes find the pages, and the keys of these are decoded and searched. A small file then costs about its
own size, however large the others are.

Core type: :class:`KeyRows`. Errors: OSError or ArrowException if a file is damaged; the caller attributes them.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from lakebed.files.parquet.page_decoder import Columns, RowSlice, read_columns, row_keys
from lakebed.files.parquet.pages import Spans, concatenated_positions, take_rows
from lakebed.files.parquet.row_positions import lower_ranks, positions_within, slices_at
from lakebed.model.arrays import Integers, booleans, of_binary, of_integers
from lakebed.model.keys import KeyCodec, comparable
from lakebed.read.rows.request import KeyList
from lakebed.read.rows.slices import forwards

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.files.parquet.footer import Fences
    from lakebed.files.parquet.pages import PagedFile
    from lakebed.model.keys import EncodedRange
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Field, Schema
    from lakebed.read.rows.request import ReadLimits

LOOKUP_ROWS = 1024 * 1024
"""About the rows whose keys are decoded at once to be searched."""

FILTERED_KEYS = 8
"""Keys for each row that are looked up in the filter of a row group. With more of them most rows have a key."""

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class KeyRows(Struct, frozen=True):
    """Key columns of rows of some files: file by file, in each by position.

    ``files`` has the index of each row's file, ``positions`` its position there.
    """

    columns: pa.RecordBatch
    files: Integers
    positions: Integers

    @classmethod
    def joined(cls, parts: Sequence[KeyRows]) -> KeyRows:
        """Return the rows of several, one after another."""
        return cls(
            pa.concat_batches([part.columns for part in parts]),
            np.concatenate([part.files for part in parts]),
            np.concatenate([part.positions for part in parts]),
        )


def key_fields(mode: MergeMode, schema: Schema) -> tuple[Field, ...]:
    """Return the fields that decide which rows are superseded: the row key, and the sort key where it counts."""
    names = mode.merge_key(schema)
    return (*schema.row_key, *(field for field in schema.sort_key if mode.by_sort_key or field.name in names))


def superseded(rows: KeyRows, mode: MergeMode, schema: Schema) -> Flags:
    """Return which rows the merge leaves out, if ``rows`` has all rows of their keys.

    If the mode computes rows: which of them share their key with a row of another file.
    """
    order = np.arange(len(rows.positions))
    names = mode.merge_key(schema)
    if len(names) == 1:
        encoded = comparable(rows.columns.column(names[0]))
    else:
        encoded = KeyCodec(tuple(schema.by_name[name] for name in names)).encode_columns(rows.columns)
    codes = encoded.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if mode.kept is None:
        apart: Flags = rows.files[_last(codes, order)[codes]] != rows.files[_last(codes, order[::-1])[codes]]
        return apart
    if mode.by_sort_key:
        # Few rows share their key with another, and only these need an order.
        order = np.flatnonzero(np.bincount(codes)[codes] > 1)
        by_sort_key = KeyCodec(schema.sort_key).encode_columns(rows.columns.take(of_integers(order)))
        # Stable, so of several rows with the same sort key the last to arrive stays the last.
        order = order[pc.sort_indices(by_sort_key).to_numpy().astype(np.int64)]
    kept = _last(codes, order if mode.kept else order[::-1])
    left: Flags = np.zeros(len(codes), np.bool_)
    left[order] = kept[codes[order]] != order
    return left


def _last(codes: Integers, order: Integers) -> Integers:
    """Return for each code the last row that has it, of rows in this order."""
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    # Of several assignments to one element NumPy keeps the last.
    last[codes[order]] = order
    return last


def key_rows(
    files: Sequence[PagedFile], keys: EncodedRange, fields: Sequence[Field], limits: ReadLimits
) -> Iterator[KeyRows]:
    """Return the rows of files with keys in a range, in slices of the range that ascend."""
    for part in forwards(files, keys, limits):
        slices: list[RowSlice] = []
        begins: list[tuple[int, int]] = []
        for index, file in enumerate(files):
            firsts = _first_rows(file)
            for position in file.footer.fences.reaching(part):
                group = file.footer.groups[position]
                rows = range(group.rows)
                if file.footer.paged:
                    rows = file.key_pages(position, group).rows(part, group.rows, None).rows
                if rows:
                    slices.append(RowSlice(file, position, group, rows))
                    begins.append((index, firsts[position] + rows.start))
        if not slices:
            continue
        columns = read_columns(slices, fields)
        starts = list(accumulate((len(one.rows) for one in slices), initial=0))
        schema = files[0].schema
        spans = positions_within(row_keys(columns, schema), schema.codec, part, starts)
        counts = [len(span) for span in spans]
        wanted = concatenated_positions(spans)
        moved = np.array([first - start for (_, first), start in zip(begins, starts, strict=False)], np.int64)
        yield KeyRows(
            batch_of({name: take_rows(column, wanted) for name, column in columns.items()}, fields),
            np.repeat(np.array([index for index, _ in begins], np.int64), counts),
            np.asarray(wanted, np.int64) + np.repeat(moved, counts),
        )


def competing_rows(  # noqa: PLR0913 - which keys of which file, and where they are looked up
    files: Sequence[PagedFile],
    index: int,
    others: Sequence[int],
    *,
    keys: EncodedRange,
    fields: Sequence[Field],
    limits: ReadLimits,
) -> Iterator[KeyRows]:
    """Return the rows of one file with keys in a range, each time with the rows of ``others`` that have their keys.

    ``others`` are ascending indices of files, and include the one's own.

    Requires that each file has a row key once.
    """
    schema = files[index].schema
    for mine in key_rows([files[index]], keys, fields, limits):
        encoded = schema.codec.encode_columns(mine.columns).to_pylist()
        wanted = KeyList.of(schema, encoded)
        parts = [
            KeyRows(mine.columns, np.full(len(encoded), index), mine.positions)
            if other == index
            else _rows_of_keys(files[other], other, wanted, fields)
            for other in others
        ]
        yield KeyRows.joined(parts)


def _rows_of_keys(file: PagedFile, index: int, wanted: KeyList, fields: Sequence[Field]) -> KeyRows:
    """Return the rows of a file with one of the keys, which ascend."""
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    probes: list[_KeyProbe] = []
    for position in range(len(file.footer.groups)):
        probes += _key_probes(file, position, wanted)
        if sum(len(probe.rows) for probe in probes) >= LOOKUP_ROWS:
            found.append(_search(file, probes, wanted))
            probes = []
    if probes:
        found.append(_search(file, probes, wanted))
    indices, positions = (np.concatenate(parts) for parts in zip(*found, strict=True))
    keys = wanted.values.take(of_integers(indices))
    columns = dict(zip(keys.schema.names, keys.columns, strict=True))
    if rest := [field for field in fields if field.name not in columns]:
        slices = list(slices_at(file, positions.tolist()))
        columns |= read_columns(slices, rest) if slices else {f.name: pa.nulls(0, f.stored_type) for f in rest}
    return KeyRows(batch_of(columns, fields), np.full(len(positions), index), positions)


class _KeyProbe(Struct, frozen=True):
    """Keys that a row group may have, by their indices, and the rows of the pages that may have any.

    Each key may be among ``[low, high)`` of these rows, counted from 0.
    """

    position: int
    indices: Integers
    rows: Spans
    low: Integers
    high: Integers


def _key_probes(file: PagedFile, position: int, wanted: KeyList) -> Iterator[_KeyProbe]:
    """Return the probe of a row group, if any page may have one of the keys."""
    group, fences = file.footer.groups[position], file.footer.fences
    first = bisect_left(wanted.encoded, fences.starts[position])
    inside = range(first, bisect_left(wanted.encoded, fences.ends[position], first))
    indices = np.array(inside, np.int64)
    if 0 < len(inside) <= FILTERED_KEYS * group.rows:
        may_be_in = wanted.hashed.may_be_in(file, group, inside)
        indices = indices if may_be_in is None else indices[may_be_in]
    first_rows: Sequence[int] = (0,)
    low, high = np.zeros(len(indices), np.int64), np.ones(len(indices), np.int64)
    if file.footer.paged and len(indices):
        known = file.key_pages(position, group)
        first_rows = known.first_rows
        low, high = _around(known.fences, [wanted.encoded[index] for index in indices.tolist()])
    reached = low < high
    indices, low, high = indices[reached], low[reached], high[reached]
    if len(indices):
        firsts = np.append(np.asarray(first_rows, np.int64), group.rows)
        pages = np.unique(Spans(low, high).every())
        rows = Spans(firsts[pages], firsts[pages + 1])
        starts = np.append(0, np.cumsum(rows.ends - rows.begins))
        low, high = starts[np.searchsorted(pages, low)], starts[np.searchsorted(pages, high - 1) + 1]
        yield _KeyProbe(position, indices, rows, low, high)


def _around(fences: Fences, keys: Sequence[bytes]) -> tuple[Integers, Integers]:
    """Return the first page that may have each key, and the one after the last; the keys ascend."""
    if len(keys) <= len(fences.starts):
        around = (fences.around(key) for key in keys)
        low, high = np.fromiter(chain.from_iterable(around), np.int64, 2 * len(keys)).reshape(-1, 2).T
        return low, high
    # The other way round, because there are fewer pages than keys: which keys are not below a bound.
    every = np.arange(len(keys))
    ends, starts = ([bisect_left(keys, bound) for bound in bounds] for bounds in (fences.ends, fences.starts))
    return np.searchsorted(ends, every, "right"), np.searchsorted(starts, every, "right")


def _search(file: PagedFile, probes: Sequence[_KeyProbe], wanted: KeyList) -> tuple[Integers, Integers]:
    """Return the indices of the keys that the rows of the probes have, and the positions of these; both ascend."""
    codec, groups, firsts = file.schema.codec, file.footer.groups, _first_rows(file)
    slices = [RowSlice(file, one.position, groups[one.position], one.rows) for one in probes]
    keys = row_keys(read_columns(slices, file.schema.row_key), file.schema)
    passed = list(accumulate((len(one.rows) for one in probes), initial=0))
    moved = list(zip(probes, passed, strict=False))
    indices = np.concatenate([one.indices for one in probes])
    low, high = (np.concatenate([end(one) + start for one, start in moved]) for end in (_LOW, _HIGH))
    bounds = [wanted.encoded[index] for index in indices.tolist()]
    ranks = lower_ranks(keys, codec, bounds, low, high)
    there = np.flatnonzero(ranks < high)
    found = codec.encode_columns(keys.take(of_integers(ranks[there])))
    hits = there[booleans(pc.equal(found, of_binary([bounds[index] for index in there.tolist()])))]
    # Of the rows that were decoded, as rows of the file.
    begins = np.concatenate([one.rows.begins + firsts[one.position] for one in probes])
    sizes = np.concatenate([one.rows.ends - one.rows.begins for one in probes])
    starts = np.cumsum(sizes) - sizes
    page = np.searchsorted(starts, ranks[hits], side="right") - 1
    return indices[hits], begins[page] + ranks[hits] - starts[page]


_LOW, _HIGH = attrgetter("low"), attrgetter("high")


def batch_of(columns: Columns, fields: Sequence[Field]) -> pa.RecordBatch:
    """Return columns by their names as a batch, in the order of the fields."""
    names = [field.name for field in fields]
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names)


def _first_rows(file: PagedFile) -> list[int]:
    """Return the position of the first row of each row group."""
    return list(accumulate((group.rows for group in file.footer.groups), initial=0))
