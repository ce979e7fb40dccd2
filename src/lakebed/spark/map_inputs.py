"""What the map tasks of a bulk import read, and how they read Parquet files by themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadKeyError
from lakebed.ingest.conformer import Conformer
from lakebed.model.keys import KeyCodec
from lakebed.parquet.sizes import pages_bytes_max
from lakebed.spark import parquet_source, wire
from lakebed.spark.boundaries import InputPart
from lakebed.spark.interrupt import Stop
from lakebed.spark.shuffle import Chunks, Shuffle, whole_key
from lakebed.state.transactions import Source

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.storage.contract import Storage

MAP_SHARE = 3
"""A map task takes a third of the memory limit in uncompressed Parquet: about one chunk of the sort, so that a reducer
gets one piece of it and merges few of them."""

SAMPLE_THREADS = 4


@dataclass(frozen=True, slots=True)
class MapInput:
    """What the map tasks read: a document each with the rows it must give, and where keys lie as far as known."""

    documents: tuple[Any, ...]
    rows: tuple[int, ...]
    parts: tuple[InputPart, ...]
    size_bytes: int
    files: int
    chunks: Chunks


def native_input(files: Sequence[Source], shuffle: Shuffle, conformer: Conformer, stop: Stop) -> MapInput:
    """Parquet files, checked and sampled. Raises DamagedError, SchemaMismatchError, KeyboardInterrupt."""
    home = shuffle.place.connect()
    groups = tuple(group for group in parquet_source.read_footers(files, conformer, home, stop) if group.rows)
    tasks = _tasks(groups, shuffle.memory_limit_bytes // MAP_SHARE)
    return MapInput(
        documents=tuple(_document(task, files) for task in tasks),
        rows=tuple(sum(group.rows for group in task) for task in tasks),
        parts=_sampled(files, groups, conformer, (home, stop)),
        size_bytes=sum(file.size_bytes for file in files),
        files=len(files),
        chunks=partial(native_chunks, conformer=conformer),
    )


def _tasks(groups: Sequence[parquet_source.SourceGroup], bytes_max: int) -> list[list[parquet_source.SourceGroup]]:
    """Row groups that one map task reads: neighbours, of about the same size together."""
    tasks: list[list[parquet_source.SourceGroup]] = []
    size = 0
    for group in groups:
        if not tasks or size + group.raw_bytes > bytes_max:
            tasks.append([])
            size = 0
        tasks[-1].append(group)
        size += group.raw_bytes
    return tasks


def _document(task: Sequence[parquet_source.SourceGroup], files: Sequence[Source]) -> Any:
    numbers = sorted({group.file for group in task})
    return [
        [files[n].url, files[n].size_bytes, files[n].version, [g.index for g in task if g.file == n]] for n in numbers
    ]


def _sampled(
    files: Sequence[Source],
    groups: Sequence[parquet_source.SourceGroup],
    conformer: Conformer,
    at: tuple[Storage, Stop],
) -> tuple[InputPart, ...]:
    home, stop = at
    keyed = whole_key(conformer.schema)
    chosen = set(parquet_source.chosen_groups(groups))

    def part(item: tuple[int, parquet_source.SourceGroup]) -> InputPart:
        stop.check()
        position, group = item
        if position in chosen:
            return InputPart(group.rows, parquet_source.sample_keys(files[group.file], group, (conformer, keyed), home))
        low, high = (None, None) if group.bounds is None else (_first(v, keyed.codec) for v in group.bounds)
        return InputPart(group.rows, min=low, max=high)

    with ThreadPoolExecutor(SAMPLE_THREADS) as pool:
        return tuple(pool.map(part, enumerate(groups)))


def _first(value: Any, codec: KeyCodec) -> bytes | None:
    """A statistic's value as the beginning of a key; None if it is not of the field's own type."""
    try:
        return codec.encode((value,))
    except BadKeyError:
        return None


def native_chunks(document: Any, shuffle: Shuffle, conformer: Conformer) -> Iterator[pa.Table]:
    """A map task: read row groups, sort them in chunks."""
    from lakebed.sorting.sort import sort_chunks

    rows = (conformer.conform(batch, uri) for batch, uri in _rows(document, shuffle))
    yield from sort_chunks(rows, conformer.schema, memory_limit_bytes=shuffle.memory_limit_bytes)


def source_rows(batches: Iterator[pa.RecordBatch], shuffle: Shuffle) -> Iterator[tuple[pa.RecordBatch, str]]:
    """The rows of a staging task whose partition is one document."""
    for batch in batches:
        for payload in batch.column(1).to_pylist():
            yield from _rows(wire.load(payload), shuffle)


def _rows(document: Any, shuffle: Shuffle) -> Iterator[tuple[pa.RecordBatch, str]]:
    return parquet_source.read_task(document, pages_bytes_max(shuffle.memory_limit_bytes), shuffle.place.connect())
