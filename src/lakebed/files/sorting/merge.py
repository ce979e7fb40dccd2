"""Merges sorted files into one ordered stream or run, in memory bounded by a setting, not by the size of the inputs.

The merge is a DataFusion plan with one partition for each input: scans that declare their order, a union, a
sort-preserving merge (:func:`ordered`, which scans of few files use as well). The plan is checked before it runs: one
that sorts would read all of its input first, and is an error.

By the merge mode ``KeepAll`` every row stays, and rows with equal sort columns come out in any order. By the other
modes rows with equal merge keys become one (:class:`~lakebed.files.merging.row_merger.RowMerger`). Inputs are then
given in order of arrival, and rows with equal sort columns come out in that order: the plan adds the position of the
input to each row, as a literal column, which is the last one to sort by. An input has at most one row for each merge
key. Hidden columns (:mod:`lakebed.model.row_kinds`) are read if an input has them.

Core functions: :func:`merge_runs` writes a run, :func:`merge_stream` gives batches.

The memory of a merge, and how the limit M bounds each part:

* *Bytes read.* A Parquet scan keeps the compressed bytes of all row groups that it has read until its end
  (apache/arrow-rs#9695: ranges fetched together are not released), so a single plan would hold all of its inputs.
  Therefore the keys of inputs of more than M/2 bytes are divided into *slices* of at most M/4
  (:mod:`lakebed.files.sorting.slice_sizes`). Each slice is merged by a plan of its own, one after another, with a
  predicate that prunes row groups and pages. At each border between slices one page of each input is decoded twice,
  because the borders suit the statistics of pages (:func:`tiles`).
* *Batches.* The merge holds about eight batches of each input (decoded, as comparable rows, in the channel, in the
  output). The rows of a batch are limited so that these stay within M/2.
* *Fan-in.* Each Parquet input costs about 2 MiB whatever its size (pages, decompressors, metadata), each Arrow input a
  few batches of the size it was written with. More inputs than fit into M are merged in *levels*: groups of
  neighbouring inputs into Arrow files in a scratch folder, those into the output. Each level merges rows with equal
  merge keys.
* *Wide rows.* The engine reads whole column chunks of a Parquet file, on threads that allocate rarely. Its allocator
  (mimalloc 2) returns what another thread has freed only at every hundredth allocation of the thread that made it,
  which may be a hundred chunks of 16 MiB. Parquet inputs with rows of 16 KiB or more are therefore decoded by Arrow
  into Arrow files first.

Arrow inputs cannot be pruned and hold one batch at a time, so a merge with any of them has one slice. Parquet inputs
among them that are too large for that go through a level first.

Measured on 2-million-row files of 50 MB, M = 512 MiB (benchmarks/kernels.py): one plan over 10 files held 0.8 GB and
grew with every file; slices held 0.4 to 0.6 GB for 10 files, 0.8 for 40, 1.0 for 200, at the same speed for 10. The
engine's allocator does not return all that is freed: the same slice merged again and again grew the process to about
five times a slice. So slices are as small as the double work at their borders allows, and inputs that fit are read
without any: the process then takes as much memory as with slices, or less.

By ``KeepAll``, row groups whose keys lie in no other input are copied, and only the ranges between them are merged.

Rules. Local paths only; scratch files are deleted when a call ends, however it ends.

Errors: DamagedError or SchemaMismatchError naming the input, StorageError if there is no room.

*Divides a merge that does not fit into memory into levels of inputs and slices of keys. Only reads inputs.*

Core functions: :func:`levels`, :func:`slices_of`.

*Finds the parts that need no merge: successive row groups of one file, whose keys lie in no other input.*

Runs of keys that grow with time overlap little, so most of their rows would be decoded, compared with nothing and
encoded again. Such row groups are copied instead (:mod:`lakebed.files.parquet.group_copy`), and only the ranges
between them are merged. A copy takes about a tenth of the work of a merge.

Rules:

* Only files that Lakebed wrote with exactly the columns of the schema are copied from.
* A key's rows lie all in one stretch, or all outside: a range of keys that is merged must not miss or repeat them.
* A stretch has at least an eighth of ``file_bytes``: it becomes a file of its own, and many small files would be worse
  than the work that they save.
* An input is taken to have keys anywhere between its first and its last, so that only one footer of each is read.

Core: :func:`stretches`, :func:`gaps`. Reads inputs, writes nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from datafusion import lit

from lakebed.engine.datafusion import column, context, inside, operators_of, read_as, sort_order, url
from lakebed.engine.predicate import passing
from lakebed.errors import Code, Error
from lakebed.files.merging.row_merger import RowMerger
from lakebed.files.parquet.file_writer import as_schema, write_run
from lakebed.files.parquet.group_copy import copy_groups, copyable, last_key
from lakebed.files.parquet.layout import Layout, SortedFile
from lakebed.files.sorting.merge_inputs import (
    MergeInput,
    first_keys,
    open_input,
    put_into_arrow,
    read_through,
    sample,
    spans,
    write_spill,
)
from lakebed.files.sorting.slice_sizes import slice_bytes
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyCodec, successor
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.row_kinds import ARRIVAL, KIND, merge_schema, visible_schema, with_hidden
from lakebed.model.schema import Schema
from lakebed.storage.disk_space import scratch_folder

if TYPE_CHECKING:
    from datafusion import DataFrame, ExecutionPlan, Expr, SessionContext

    from lakebed.engine.predicate import Predicate
    from lakebed.files.parquet.footer import Footer
    from lakebed.model.merge_modes import MergeMode


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """When a merge has several levels and slices, and which row groups it copies."""

    fan_in_min: int = 12
    slice_rows: int = 40_000
    """The least rows of each input in a slice: one page of each decoded twice at a border is then 10% of the work."""

    copied_share: int = 8
    """The least size of a stretch, as a fraction of ``file_bytes``; the planner concatenates runs of such files."""


LIMITS = MergeLimits()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Successive row groups of an input, with all rows of the merge whose keys are in ``keys``."""

    item: MergeInput
    groups: range
    keys: EncodedRange


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group with its first key. Its rows have keys in ``keys``, which is wider where the end is not known."""

    index: int
    size_bytes: int
    first: bytes
    keys: EncodedRange


def stretches(
    inputs: Sequence[MergeInput], layout: Layout, key_range: EncodedRange | None, limits: MergeLimits = LIMITS
) -> list[Stretch]:
    """Return the parts to copy in a merge of all rows in the key range, in key order; none if too little would be
    saved.

    Raises DamagedError for a footer that cannot be read, Error for row groups out of order.
    """
    bytes_min = max(1, layout.file_bytes // limits.copied_share)
    present = [item for item in inputs if item.rows]
    if any(item.is_arrow for item in present) or all(item.file_bytes < bytes_min for item in present):
        return []
    footers = [copyable(item.path, layout.schema) for item in present]
    if None in footers:
        return []
    every = [_groups(item, layout.schema, footer) for item, footer in zip(present, footers, strict=True) if footer]
    bounds = [EncodedRange(groups[0].first, groups[-1].keys.max) for groups in every]
    parts: list[Stretch] = []
    for index, item in enumerate(present):
        if item.file_bytes < bytes_min or item.is_wide:
            continue
        others = [*bounds[:index], *bounds[index + 1 :]]
        alone = _alone(every[index], key_range or ALL_KEYS, others)
        parts += _of_input(item, every[index], alone, schema=layout.schema, bytes_min=bytes_min)
    return sorted(parts, key=lambda stretch: stretch.keys.min)


def gaps(found: Sequence[Stretch], key_range: EncodedRange | None) -> Iterator[EncodedRange]:
    """Return the ranges of keys before, between and behind the stretches, one more than those; some may be empty."""
    whole = key_range or ALL_KEYS
    begin: bytes | None = whole.min
    for stretch in found:
        assert begin is not None
        yield EncodedRange(begin, stretch.keys.min)
        begin = stretch.keys.max
    yield EncodedRange(b"", b"") if begin is None else EncodedRange(begin, whole.max)


def _alone(groups: Sequence[_Group], key_range: EncodedRange, others: Sequence[EncodedRange]) -> list[bool]:
    """Return for each row group whether it lies in the key range, and outside the bounds of the other inputs."""
    return [
        key_range.covers(group.keys) and all(other.intersect(group.keys).empty for other in others) for group in groups
    ]


def _of_input(
    item: MergeInput, groups: Sequence[_Group], alone: Sequence[bool], *, schema: Schema, bytes_min: int
) -> Iterator[Stretch]:
    """Return the stretches of row groups of one input that are ``alone``, of at least ``bytes_min``."""
    for free, members in groupby(range(len(groups)), key=alone.__getitem__):
        indices = list(members)
        if not free or sum(groups[index].size_bytes for index in indices) < bytes_min:
            continue
        low, high = indices[0], indices[-1] + 1
        # A key may have rows on both sides of a border between row groups.
        while low < high and low and last_key(item.path, groups[low - 1].index, schema) == groups[low].first:
            low += 1
        while low < high < len(groups) and last_key(item.path, groups[high - 1].index, schema) == groups[high].first:
            high -= 1
        if sum(group.size_bytes for group in groups[low:high]) >= bytes_min:
            keys = EncodedRange(groups[low].first, successor(last_key(item.path, groups[high - 1].index, schema)))
            yield Stretch(item, range(groups[low].index, groups[high - 1].index + 1), keys)


def _groups(item: MergeInput, schema: Schema, footer: Footer) -> list[_Group]:
    """Return the row groups, each up to the first key of the next, and the last up to its upper bound."""
    firsts = first_keys(item, schema)
    # Long keys, and floats with NaN, have no bounds in the footer.
    last = None if footer.groups[-1].keys.max is not None else last_key(item.path, firsts[-1][0].group, schema)
    end = footer.groups[-1].keys.max if last is None else successor(last)
    ends = [*(successor(first) for _, first in firsts[1:]), end]
    return [
        _Group(span.group, span.file_bytes, first, EncodedRange(first, above))
        for (span, first), above in zip(firsts, ends, strict=True)
    ]


BATCHES_HELD = 8
"""Batches of each input that a merge holds."""

BATCH_ROWS_MIN = 256

_INPUT_BYTES = 2 * 1024 * 1024
_SAMPLES = 8
"""Sampled rows for a slice: the sizes of slices then vary by about a third."""


def levels(inputs: Sequence[MergeInput], memory_limit_bytes: int, fan_in_min: int) -> list[list[MergeInput]]:
    """Return the groups of neighbours that are merged on their own first; one group if the inputs fit into one plan."""
    parquet_bytes = sum(item.file_bytes for item in inputs if not item.is_arrow)
    if any(item.is_arrow for item in inputs) and parquet_bytes > memory_limit_bytes // 4:
        return [
            part
            for is_arrow, group in itertools.groupby(inputs, key=lambda item: item.is_arrow)
            for part in ([[item] for item in group] if is_arrow else [list(group)])
        ]
    held_bytes = sum(_held_bytes(item) for item in inputs)
    fan_in = max(fan_in_min, len(inputs) * memory_limit_bytes // max(1, held_bytes))
    if len(inputs) <= fan_in:
        return [list(inputs)]
    # Groups of equal size, or a last group of one file would only be copied.
    count = -(-len(inputs) // fan_in)
    return [list(inputs[i * len(inputs) // count : (i + 1) * len(inputs) // count]) for i in range(count)]


def _held_bytes(item: MergeInput) -> int:
    batches = (3 * item.batch_bytes) if item.is_arrow else (BATCHES_HELD * BATCH_ROWS_MIN * item.row_bytes)
    return batches + (0 if item.is_arrow else _INPUT_BYTES)


def slices_of(
    inputs: Sequence[MergeInput],
    schema: Schema,
    ranges: Sequence[EncodedRange | None],
    memory_limit_bytes: int,
    slice_rows: int,
) -> list[Expr | None]:
    """Return conditions that divide the rows into disjoint slices in key order, each of at most M/4 bytes of input;
    one if they have at most M/2.

    Rows with equal row key and sort key stay together, however many.
    """
    codec, key_range, known = schema.codec, ranges[0], [part for part in ranges[1:] if part is not None]
    if any(item.is_arrow for item in inputs) or (key_range is None and len(known) == 1):
        return [inside(codec, key_range)]
    if known:
        whole = EncodedRange(known[0].min, known[-1].max)
        return [inside(codec, tile) for tile in tiles(codec, whole, [part.min for part in known[1:]])]
    places = spans(inputs, schema, key_range)
    total = sum(span.file_bytes for span in places)
    if slice_bytes(total, memory_limit_bytes) == total:
        return [inside(codec, key_range)]
    overlap = slice_rows * len(inputs) * total // max(1, sum(span.rows for span in places))
    # A tile is up to twice as large.
    size = max(1, min(max(overlap, memory_limit_bytes // 16), slice_bytes(total, memory_limit_bytes)))
    codec, whole = KeyCodec((*schema.row_key, *schema.sort_key)), key_range or ALL_KEYS
    keys = codec.encode_columns(sample(places, schema, max(1, size // _SAMPLES))).to_pylist()
    cuts = [key for key in dict.fromkeys(keys[_SAMPLES::_SAMPLES]) if key > whole.min and whole.contains(key)]
    return [inside(codec, tile) for tile in tiles(codec, whole, cuts)]


def tiles(codec: KeyCodec, key_range: EncodedRange, cuts: Sequence[bytes]) -> list[EncodedRange]:
    """Divide a key range at about these ascending keys, each tile at most as large as two of the parts between them.

    Pages have statistics of each field alone. So that a scan of a tile reads few pages of another one, the keys of a
    tile agree in their first fields and have a range of values in one more field: a cut moves back to where the first
    of its values begin, if the cut before it is below that. Further cuts are made where first values begin and end.
    """
    moved, before = [], key_range.min
    for cut in cuts:
        moved.append(next(start for start in _starts(codec, cut) if start > before))
        before = cut
    borders = [key_range.min]
    for border in moved if key_range.max is None else [*moved, key_range.max]:
        for start in _starts(codec, border):
            if start > borders[-1]:
                borders += [*_ends(codec, borders[-1], start), start]
    if key_range.max is None:
        borders += _ends(codec, borders[-1], None)
    else:
        borders.pop()
    return [EncodedRange(low, high) for low, high in zip(borders, [*borders[1:], key_range.max], strict=True)]


def _starts(codec: KeyCodec, key: bytes) -> list[bytes]:
    """Return the least keys with the first value of a key, its first two values and so on, and the key itself."""
    first = (KeyCodec(codec.fields[:count]).beginning(key) for count in range(1, len(codec.fields)))
    return list(dict.fromkeys([*first, key]))


def _ends(codec: KeyCodec, key: bytes, high: bytes | None) -> list[bytes]:
    """Return the ends of all keys below ``high`` that agree with a key in some of its first values, ascending."""
    ends = [successor(start) for start in reversed(_starts(codec, key)[:-1])]
    return [end for end in dict.fromkeys(ends) if end is not None and (high is None or end < high)]


_POOL_BYTES_MIN = 64 * 1024 * 1024
"""The engine fails beyond twice the limit; the smallest merge needs this much."""
_BATCH_ROWS_MAX = 16_384
_BATCH_BYTES = 4 * 1024 * 1024

_STREAMING = {
    "SortPreservingMergeExec", "UnionExec", "FilterExec", "ProjectionExec", "DataSourceExec", "CoalesceBatchesExec",
    "CooperativeExec", "EmptyExec", "CoalescePartitionsExec",
}  # fmt: skip
"""Operators that a merge may consist of: each holds batches, none holds its input."""

_ORDERED_MERGE = "SortPreservingMergeExec"
_MERGES = {_ORDERED_MERGE, "CoalescePartitionsExec"}
"""The second takes the place of the first if the range leaves one value for all sort columns: a single key."""


@dataclass(frozen=True, slots=True)
class _Merge:
    """How inputs are merged: by ``mode``, rows of the merge schema ``schema`` for which ``where`` is true."""

    mode: MergeMode
    schema: Schema
    memory_limit_bytes: int
    scratch: Path
    limits: MergeLimits
    where: Predicate | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether no rows become one."""
        return self.mode.keeps_all

    def rows(self, ordered_rows: Iterator[pa.RecordBatch], *, complete: bool) -> Iterator[pa.RecordBatch]:
        """Return one row for each merge key of the rows that the inputs have in order; all by ``KeepAll``."""
        if self.keeps_all:
            return ordered_rows
        return RowMerger(self.mode, visible_schema(self.schema), complete=complete).merge(ordered_rows)


def merge_runs(  # noqa: PLR0913 - what, how, where, which part, how much
    inputs: Sequence[Path],
    layout: Layout,
    scratch: Path,
    *,
    key_range: EncodedRange | None,
    memory_limit_bytes: int,
    cuts: Sequence[bytes] = (),
    slices: Sequence[EncodedRange] = (),
    progress: Callable[[int], None] | None = None,
    mode: MergeMode = KEEP_ALL,
    complete: bool = False,
    where: Predicate | None = None,
    limits: MergeLimits = LIMITS,
) -> list[SortedFile]:
    """Merge sorted files, restricted to a key range, into one run in the folder ``scratch``.

    ``slices`` tile the key range in order, each with about as much input as
    :func:`~lakebed.files.sorting.slice_sizes.slice_bytes` says; the merge moves their borders. A caller that has the
    inputs' summaries can give them; otherwise keys of large inputs are sampled.

    Requires inputs sorted by row key, then sort key, of any schema that the table had: Parquet files, or Arrow IPC
    files of :func:`~lakebed.files.sorting.merge_inputs.write_spill`. ``progress`` is called with the rows of each batch
    of the inputs. The result is that of :func:`~lakebed.files.parquet.file_writer.write_run`; without rows there
    is no file.

    By a ``mode`` other than ``KeepAll`` inputs are in order of arrival, each with at most one row for a merge key.
    ``complete`` says that no older run has rows of the range, so that deletes go and no hidden column is written.
    Only rows for which ``where`` is true stay; it is evaluated before rows are merged.

    Raises DamagedError or SchemaMismatchError naming the input at fault, StorageError if there is no room.
    """
    opened, schema = _opened(inputs, layout.schema, mode)
    merge = _Merge(mode, schema, memory_limit_bytes, scratch, limits, where)
    if not merge.keeps_all:
        visible = visible_schema(layout.schema)
        layout = replace(layout, schema=with_hidden(visible) if KIND in schema.by_name and not complete else visible)
    estimate = sum(item.rows for item in opened)

    def merged(ranges: Sequence[EncodedRange | None]) -> list[SortedFile]:
        with contextlib.closing(_counted(_ordered_rows(opened, merge, ranges), progress)) as ordered_rows:
            rows = merge.rows(ordered_rows, complete=complete)
            return write_run(
                rows, layout, scratch, rows_estimate=estimate, cuts=cuts, memory_limit_bytes=memory_limit_bytes
            )

    with _attributed(opened, schema):
        copied = stretches(opened, layout, key_range, limits) if merge.keeps_all and where is None else []
    if not copied:
        return merged([key_range, *slices])
    files: list[SortedFile] = []
    try:
        for gap, stretch in zip_longest(gaps(copied, key_range), copied):
            if not gap.empty:
                files += merged([gap, *(part for one in slices if not (part := one.intersect(gap)).empty)])
            if stretch is not None:
                with _attributed([stretch.item], schema):
                    files.append(copy_groups(stretch.item.path, stretch.groups, layout, scratch, cuts=cuts))
                if progress is not None:
                    progress(files[-1].rows)
    except BaseException:
        for file in files:
            file.path.unlink(missing_ok=True)
        raise
    return files


def _counted(batches: Generator[pa.RecordBatch], progress: Callable[[int], None] | None) -> Generator[pa.RecordBatch]:
    with contextlib.closing(batches):
        for batch in batches:
            if progress is not None:
                progress(batch.num_rows)
            yield batch


def merge_stream(  # noqa: PLR0913 - as above
    inputs: Sequence[Path],
    schema: Schema,
    *,
    key_range: EncodedRange | None,
    memory_limit_bytes: int,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    scratch: Path | None = None,
    mode: MergeMode = KEEP_ALL,
    limits: MergeLimits = LIMITS,
) -> Generator[pa.RecordBatch]:
    """Return the merged rows as batches with the schema's columns, or the named ones, in key order.

    ``scratch`` holds the levels of a merge with very many inputs; by default the system's folder for temporary files.
    By a ``mode`` other than ``KeepAll`` inputs are as those of :func:`merge_runs`, and the merge is complete; ``where``
    selects rows before they are merged, so it may refer to row key fields only. Raises as :func:`merge_runs`.
    """
    names = schema.project(columns)
    opened, merged_schema = _opened(inputs, schema, mode)
    folder = Path(tempfile.gettempdir()) if scratch is None else scratch
    merge = _Merge(mode, merged_schema, memory_limit_bytes, folder, limits, where)
    with contextlib.closing(_ordered_rows(opened, merge, [key_range])) as ordered_rows:
        for batch in merge.rows(ordered_rows, complete=True):
            yield batch if names == schema.names else batch.select(names)


def _opened(inputs: Sequence[Path], schema: Schema, mode: MergeMode) -> tuple[list[MergeInput], Schema]:
    """Return the inputs, and the schema by which they are merged: with hidden fields if an input has them."""
    if mode.keeps_all:
        return [open_input(path, schema) for path in inputs], schema
    visible = visible_schema(schema)
    # A merge schema has its hidden fields already: none for sort key fields, which partial rows always have.
    hidden = merge_schema(mode, schema, hidden=KIND not in schema.by_name)
    opened = [open_input(path, hidden) for path in inputs]
    kind = hidden.names.index(KIND)
    if any(item.columns[kind] is not None for item in opened):
        return opened, hidden
    return [replace(item, columns=item.columns[:kind]) for item in opened], merge_schema(mode, visible, hidden=False)


def _ordered_rows(
    inputs: Sequence[MergeInput], merge: _Merge, ranges: Sequence[EncodedRange | None]
) -> Generator[pa.RecordBatch]:
    """Return the rows in order, those with equal sort columns in the order of the inputs; ``KeepAll`` has them in any.

    ``ranges`` are the key range, then the slices that tile it, if they are known.
    """
    present = [item for item in inputs if item.rows]
    if not present or (ranges[0] is not None and ranges[0].empty):
        return
    if any(item.is_wide for item in present):
        with scratch_folder("wide", merge.scratch) as folder:
            places = [(item, folder / f"{index:06d}.arrow") for index, item in enumerate(present)]
            narrow = [
                put_into_arrow(item, merge.schema, ranges[0], path) if item.is_wide else item for item, path in places
            ]
            yield from _ordered_rows(narrow, merge, ranges)
        return
    groups = levels(present, merge.memory_limit_bytes, merge.limits.fan_in_min)
    if len(groups) == 1:
        yield from _one_level(groups[0], merge, ranges)
        return
    with scratch_folder("merge", merge.scratch) as folder:
        spills = []
        for group in groups:
            if len(group) == 1 and group[0].is_arrow:
                spills.append(group[0])
                continue
            with contextlib.closing(_ordered_rows(group, merge, ranges)) as rows:
                batches = merge.rows(rows, complete=False)
                path = write_spill(batches, merge.schema.arrow, folder / f"{len(spills):06d}.arrow")
            widest = max(item.row_bytes for item in group)
            spill = open_input(path, merge.schema)
            spills.append(replace(spill, row_bytes=max(widest, spill.row_bytes)))
        yield from _ordered_rows(spills, merge, ranges)


def _one_level(
    inputs: Sequence[MergeInput], merge: _Merge, ranges: Sequence[EncodedRange | None]
) -> Iterator[pa.RecordBatch]:
    schema, where, memory_limit_bytes = merge.schema, merge.where, merge.memory_limit_bytes
    row_bytes = max(item.row_bytes for item in inputs)
    rows = memory_limit_bytes // 2 // (BATCHES_HELD * len(inputs) * row_bytes)
    batch_rows = max(1, min(max(rows, BATCH_ROWS_MIN), _BATCH_ROWS_MAX, _BATCH_BYTES // row_bytes))
    engine = context(
        partitions=len(inputs), batch_rows=batch_rows, pool_bytes=max(2 * memory_limit_bytes, _POOL_BYTES_MIN)
    )
    with _attributed(inputs, schema):
        frames = [_scan(engine, item, schema, index) for index, item in enumerate(inputs)]
        slices = slices_of(inputs, schema, ranges, memory_limit_bytes, merge.limits.slice_rows)
    for condition in slices:
        with _attributed(inputs, schema, where):
            frame = ordered(frames, schema, condition, where, by_arrival=not merge.keeps_all)
            plan = frame.execution_plan()
            check_plan(operators_of(plan), by_arrival=not merge.keeps_all)
        yield from _executed(engine, plan, inputs, schema, where)


def _scan(engine: SessionContext, item: MergeInput, schema: Schema, index: int) -> DataFrame:
    stored = [field.name for field in item.columns[: len(schema.sort_names)] if field is not None]
    if not item.is_arrow:
        order = [column(name).sort() for name in stored]
        frame = engine.read_parquet(url(engine, item.path), file_extension="", file_sort_order=[order])
    else:
        # Only the SQL statement accepts an order for Arrow files.
        keys = ", ".join('"' + name.replace('"', '""') + '" ASC' for name in stored)
        location = url(engine, item.path).replace("'", "''")
        engine.sql(f"CREATE EXTERNAL TABLE input_{index} STORED AS ARROW WITH ORDER ({keys}) LOCATION '{location}'")
        frame = engine.table(f"input_{index}")
    return frame.select(*map(read_as, schema.fields, item.columns))


def ordered(
    frames: Sequence[DataFrame],
    schema: Schema,
    condition: Expr | None,
    where: Predicate | None,
    *,
    by_arrival: bool = False,
) -> DataFrame:
    """Return the rows of sorted inputs that meet the condition and the predicate, merged by row key, then sort key.

    Rows with equal sort columns come ``by_arrival`` in the order of the frames, else in any order. Requires frames that
    declare their order, such as scans with ``file_sort_order``: the sort is then planned as a merge. One frame needs
    none.
    """
    if condition is not None:
        frames = [frame.filter(condition) for frame in frames]
    if where is not None:
        frames = [passing(frame, where, schema) for frame in frames]
    if len(frames) == 1:
        return frames[0]
    if not by_arrival:
        return _union(frames).sort(*sort_order(schema))
    columns = [column(name) for name in frames[0].schema().names]
    # The engine knows that a literal is in order, and tells the literals of several inputs apart.
    numbered = [
        frame.select(*columns, lit(pa.scalar(index, pa.int32())).alias(ARRIVAL)) for index, frame in enumerate(frames)
    ]
    return _union(numbered).sort(*sort_order(schema), column(ARRIVAL).sort()).select(*columns)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda rows, frame: rows.union(frame), frames)


def _executed(
    engine: SessionContext,
    plan: ExecutionPlan,
    inputs: Sequence[MergeInput],
    schema: Schema,
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    with _attributed(inputs, schema, where):
        stream = iter(engine.execute(plan, 0))
    while True:
        with _attributed(inputs, schema, where):
            batch = next(stream, None)
            rows = None if batch is None else batch.to_pyarrow()
        if rows is None:
            return
        if rows.num_rows:
            yield as_schema(rows, schema)


def check_plan(operators: Sequence[str], *, by_arrival: bool = False) -> None:
    """Raise Error unless a plan of these operators streams and merges: none holds its input, and one merges the scans.

    Inputs without a row that can pass the predicate are not in the plan; a single one that is left needs no merge.
    ``by_arrival`` asks for a merge that keeps the order of the inputs.
    """
    unexpected = sorted(set(operators) - _STREAMING)
    allowed = {_ORDERED_MERGE} if by_arrival else _MERGES
    merges = sum(operator in allowed for operator in operators)
    if unexpected or (operators.count("DataSourceExec") > 1 and merges != 1):
        reason = f"it contains {', '.join(unexpected)}" if unexpected else "it does not merge"
        raise Code.INTERNAL_ERROR(
            f"the merge would not stream: {reason}. This is a bug; the plan has {', '.join(operators)}"
        )


@contextlib.contextmanager
def _attributed(inputs: Sequence[MergeInput], schema: Schema, where: Predicate | None = None) -> Iterator[None]:
    """Attribute a failure of the engine to its cause: an input, which the engine does not name, or the predicate."""
    try:
        yield
    except (Error, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        # A panic of the engine is a BaseException; damaged bytes can cause one.
        if "Resources exhausted" in str(error):
            raise Code.MEMORY_LIMIT_EXCEEDED(
                f"a merge of {len(inputs)} files did not fit its memory limit; raise the setting memory_limit_bytes "
                f"({str(error)[:200]})"
            ) from error
        for item in inputs:
            read_through(item.path, schema)
        if where is not None:
            raise where.evaluation_error(error) from error
        raise Code.MERGE_FAILED(
            f"the merge failed, though each of its {len(inputs)} inputs can be read: {error}"
        ) from error
