"""Decides what the map tasks of a bulk import read, and reads Parquet files in them.

:func:`native_input` reads the footer of every file on the driver before anything runs: a file that is not Parquet, or
does not fit the schema, is refused by name while nothing has been written. It samples keys of the row groups, and
shares the groups out among map tasks, which read them by :func:`native_chunks`.

Core types: :class:`MapInput`, :class:`SourceGroup`, :data:`FileGroups`.

Errors: DamagedError, SchemaMismatchError, StorageError; each names the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakebed.errors import BadKeyError
from lakebed.files.parquet.row_groups import path_of, read_row_groups
from lakebed.files.parquet.sizes import pages_bytes_max
from lakebed.jobs.bulk_import.boundaries import InputPart
from lakebed.jobs.bulk_import.shuffle import Chunks, Shuffle, whole_key
from lakebed.jobs.interrupt import Stop
from lakebed.model.keys import KeyCodec
from lakebed.model.state.table_state import Source
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.source_rows import SourceRows
from lakebed.write.sources import CHECK_THREADS, columns_of, open_source, plain, read_rows

if TYPE_CHECKING:
    from lakebed.model.files import DataFile, NewFile
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage

MAP_SHARE = 3
"""A map task takes a third of the memory limit in uncompressed Parquet: few chunks, so that a reducer gets few pieces
of it."""

TASK_BYTES_MIN = 16 * 1024 * 1024
"""A map task takes at least this much, uncompressed, even if cores are idle: some 200,000 rows, which it sorts in the
time that a worker needs to start a task."""

SAMPLE_THREADS = 4

FileGroups = tuple[tuple[Source, tuple[int, ...]], ...]
"""What one map task reads: files, and of each the row groups."""


@dataclass(frozen=True, slots=True)
class MapInput:
    """What the map tasks read: a value for each task, its number of rows, and a sample of keys.

    ``chunks`` reads what a value says. ``cores`` tasks run at once; 1 if there is nothing to run.
    """

    tasks: tuple[Any, ...]
    rows: tuple[int, ...]
    parts: tuple[InputPart, ...]
    size_bytes: int
    files: int
    chunks: Chunks
    cores: int


def native_input(
    files: Sequence[Source], shuffle: Shuffle, conformer: Conformer, stop: Stop, count_cores: Callable[[], int]
) -> MapInput:
    """Parquet files, checked and sampled. ``count_cores`` is called once the files are known to fit, if they have rows.

    Raises DamagedError, SchemaMismatchError, KeyboardInterrupt.
    """
    home = shuffle.place.connect()
    groups = tuple(
        group for group in read_footers(files, RowEncoder(conformer, shuffle.merge), home, stop) if group.rows
    )
    cores = count_cores() if groups else 1
    tasks = divide_groups(groups, shuffle.memory_limit_bytes // MAP_SHARE, cores)
    keyed = whole_key(conformer.schema, shuffle.merge)

    def sample(group: SourceGroup, rows: int, bytes_max: int) -> tuple[bytes, ...]:
        return sample_keys(files[group.file], group, conformer, keyed, home, sample_rows=rows, bytes_max=bytes_max)

    return MapInput(
        tasks=tuple(_file_groups(task, files) for task in tasks),
        rows=tuple(sum(group.rows for group in task) for task in tasks),
        parts=sampled_parts(groups, sample, keyed.codec, stop),
        size_bytes=sum(file.size_bytes for file in files),
        files=len(files),
        chunks=partial(native_chunks, conformer=conformer),
        cores=cores,
    )


def divide_groups(groups: Sequence[SourceGroup], bytes_max: int, cores: int) -> list[list[SourceGroup]]:
    """Return the row groups of each map task: neighbours, of at most ``bytes_max`` together unless a single one is
    larger.

    No core is left idle for want of tasks, if each would get a row group and ``TASK_BYTES_MIN``.
    """
    share = max(TASK_BYTES_MIN, sum(group.raw_bytes for group in groups) / cores)
    tasks: list[list[SourceGroup]] = []
    size = 0
    for group in groups:
        # A row group belongs to the share in which its middle lies.
        if not tasks or size + group.raw_bytes > bytes_max or size + group.raw_bytes / 2 > share:
            tasks.append([])
            size = 0
        tasks[-1].append(group)
        size += group.raw_bytes
    return tasks


def _file_groups(task: Sequence[SourceGroup], files: Sequence[Source]) -> FileGroups:
    numbers = sorted({group.file for group in task})
    return tuple((files[n], tuple(group.index for group in task if group.file == n)) for n in numbers)


def sampled_parts(
    groups: Sequence[SourceGroup],
    sample: Callable[[SourceGroup, int, int], tuple[bytes, ...]],
    codec: KeyCodec,
    stop: Stop,
) -> tuple[InputPart, ...]:
    """Return the parts of the input. ``codec`` encodes keys as ``sample`` does.

    ``sample(group, rows, bytes_max)`` returns about ``rows`` keys of a row group, of at most ``bytes_max`` together.
    """
    chosen = set(chosen_groups(groups))
    # Keys that compress well are in any number of row groups.
    share = max(1, len(chosen))
    rows, bytes_max = max(1, min(SAMPLE_ROWS, SAMPLE_KEYS // share)), SAMPLE_KEY_BYTES // share

    def part(item: tuple[int, SourceGroup]) -> InputPart:
        stop.check()
        position, group = item
        if position in chosen:
            return InputPart(group.rows, sample(group, rows, bytes_max))
        low, high = (None, None) if group.bounds is None else (_first(v, codec) for v in group.bounds)
        return InputPart(group.rows, min=low, max=high)

    with ThreadPoolExecutor(SAMPLE_THREADS) as pool:
        return tuple(pool.map(part, enumerate(groups)))


def _first(value: Any, codec: KeyCodec) -> bytes | None:
    """Return a statistic's value as the beginning of a key; None if it does not have the field's type."""
    try:
        return codec.encode((value,))
    except BadKeyError:
        return None


def native_chunks(task: FileGroups, shuffle: Shuffle, conformer: Conformer) -> Iterator[pa.Table]:
    """Return the rows of the row groups of a map task, in chunks."""
    encoder = RowEncoder(conformer, shuffle.merge)
    return shuffle.chunks(encoder.conform(batch, url) for batch, url in read_task(task, shuffle))


def source_rows(task: FileGroups, shuffle: Shuffle) -> Iterator[SourceRows]:
    """Return the rows of a staging task, whose value is that of a map task."""
    return (SourceRows(batch, url) for batch, url in read_task(task, shuffle))


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """One row group of the file at position ``file``.

    ``raw_bytes`` are uncompressed; ``bounds`` are the first key field's minimum and maximum.
    """

    file: int
    index: int
    rows: int
    raw_bytes: int
    key_bytes: int
    bounds: tuple[Any, Any] | None


# -- checking ---------------------------------------------------------------------------------------------------


def read_footers(files: Sequence[Source], encoder: RowEncoder, home: Storage, stop: Stop) -> tuple[SourceGroup, ...]:
    """Return the row groups of all files, in order.

    Raises DamagedError or SchemaMismatchError naming the file at fault; KeyboardInterrupt if the call was stopped.
    """

    def read(item: tuple[int, Source]) -> list[SourceGroup]:
        stop.check()
        return _read_footer(*item, encoder, home)

    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        by_file = pool.map(read, enumerate(files))
        return tuple(group for groups in by_file for group in groups)


def footer_columns(files: Sequence[Source], shuffle: Shuffle, stop: Stop) -> list[tuple[str, pa.Schema]]:
    """Return the URL and the columns of each file. Raises DamagedError, StorageError, KeyboardInterrupt."""
    home = shuffle.place.connect()

    def read(file: Source) -> tuple[str, pa.Schema]:
        stop.check()
        return columns_of(file, home)

    with ThreadPoolExecutor(CHECK_THREADS) as pool:
        return list(pool.map(read, files))


def _read_footer(position: int, file: Source, encoder: RowEncoder, home: Storage) -> list[SourceGroup]:
    with open_source(file, home) as (_, parquet):
        encoder.check(parquet.schema_arrow, file.url)
        conformer = encoder.conformer
        metadata = parquet.metadata
        first = conformer.schema.row_key[0]
        groups = []
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            columns = {path_of(group.column(i)): group.column(i) for i in range(group.num_columns)}
            keys = [columns[name] for name in conformer.keys.read if name in columns]
            groups.append(
                SourceGroup(
                    file=position,
                    index=index,
                    rows=group.num_rows,
                    raw_bytes=group.total_byte_size,
                    key_bytes=sum(column.total_compressed_size for column in keys),
                    bounds=None if first.expression else _bounds(columns.get(conformer.column(first.name))),
                )
            )
        return groups


def _bounds(column: Any) -> tuple[Any, Any] | None:
    try:
        statistics = None if column is None else column.statistics
        return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None
    except (pa.ArrowException, ValueError, OverflowError):
        # A value that Python's types cannot hold, such as a date before the year 1.
        return None


# -- sampling ---------------------------------------------------------------------------------------------------

SAMPLE_BYTES = 16 * 1024 * 1024
"""Compressed key columns read for the sample: two million keys, and a seventh of a second of one core. The other row
groups are known by the bounds of their keys."""

SAMPLE_ROWS = 16_384
"""Keys sampled from a row group: a share of an eighth is then known to about 3%."""

SAMPLE_KEYS, SAMPLE_KEY_BYTES = 1024 * 1024, 128 * 1024 * 1024
"""The keys of all row groups together, or up to twice as many, and their encoded bytes: the driver holds them."""


def chosen_groups(groups: Sequence[SourceGroup], sample_bytes: int = SAMPLE_BYTES) -> list[int]:
    """Return the positions of the row groups to sample: all, or as many as ``sample_bytes`` allow, spread evenly."""
    total = sum(group.key_bytes for group in groups)
    if total <= sample_bytes:
        return list(range(len(groups)))
    count = max(1, len(groups) * sample_bytes // total)
    return [(2 * i + 1) * len(groups) // (2 * count) for i in range(count)]


def sample_keys(  # noqa: PLR0913 - a row group, and how its keys are read
    file: Source,
    group: SourceGroup,
    conformer: Conformer,
    keyed: Schema,
    home: Storage,
    *,
    sample_rows: int = SAMPLE_ROWS,
    bytes_max: int = SAMPLE_KEY_BYTES,
) -> tuple[bytes, ...]:
    """Return keys of a row group, at least ``sample_rows`` or all, at even distances, in the schema ``keyed``, whose
    row key is row key and sort key. Of long keys there are fewer: ``bytes_max``, but one at least.
    """
    step = max(1, group.rows // sample_rows)
    names = list(conformer.schema.sort_names)
    keys: list[bytes] = []
    passed = 0
    with open_source(file, home) as (source, _):
        for stored in read_row_groups(source, file.url, [group.index], conformer.keys.read):
            wanted = np.arange((step // 2 - passed) % step, stored.num_rows, step)
            passed += stored.num_rows
            if len(wanted):
                # Rows that do not fit are refused when they are read.
                rows, _ = conformer.keys.separate(plain(stored.take(pa.array(wanted))), file.url)
                keys += keyed.codec.encode_columns(rows.select(names)).to_pylist()
    return tuple(keys[:: 1 + sum(map(len, keys)) // (bytes_max + 1)])


# -- reading -----------------------------------------------------------------------------------------------------


def read_task(task: FileGroups, shuffle: Shuffle) -> Iterator[tuple[pa.RecordBatch, str]]:
    """Return the rows of a map task's files and row groups, each batch with the file's URL."""
    home, pages_bytes = shuffle.place.connect(), pages_bytes_max(shuffle.memory_limit_bytes)
    for file, groups in task:
        for batch in read_rows(file, groups, pages_bytes=pages_bytes, home=home):
            yield batch, file.url


# -- staged files -----------------------------------------------------------------------------------------------


def staged_input(files: Sequence[NewFile], cores: int) -> MapInput:
    """Staged files as the input of map tasks."""
    return MapInput(
        tasks=tuple(new.file for new in files),
        rows=tuple(new.file.rows for new in files),
        parts=tuple(InputPart(new.file.rows, new.summary.spread()) for new in files),
        size_bytes=sum(new.file.size_bytes for new in files),
        files=0,
        chunks=staged_chunks,
        cores=cores,
    )


def staged_chunks(file: DataFile, shuffle: Shuffle) -> Iterator[pa.Table]:
    """Return the rows of a staged file, in chunks. Raises DamagedError if it is not what was written."""
    from lakebed.write.run import sent_rows

    # Parquet stores seconds as milliseconds; the chunks have the schema's own types, as boundaries do.
    return shuffle.chunks(sent_rows(shuffle.place.connect(), shuffle.table_id, file, shuffle.memory_limit_bytes))
