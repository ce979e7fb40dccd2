"""Rows, bytes, files and runs of partitions, summed over whole segments without decoding single files. Pure.

The few partitions that changed since the checkpoint are summed file by file. Uses NumPy instead of Arrow's kernels,
which take 60 ms to import, and import pandas if it is installed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lakebed.model.state.columns import Columns, span_reader

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.model.files import CommittedFile, PartitionFile
    from lakebed.model.state.table_state import TableState


class PartitionSums(NamedTuple):
    """The sums of one partition. ``size_bytes`` counts each file in proportion to its rows inside the partition.

    ``markers`` counts the deletes and partial rows of its files, inside the partition or not.
    """

    partition: int
    rows: int
    exact: bool
    size_bytes: int
    files: int
    runs: int
    markers: int = 0


def sums_of(partition: int, held: tuple[PartitionFile, ...]) -> PartitionSums:
    """Return the sums of one partition."""
    return PartitionSums(
        partition,
        rows=sum(one.rows for one in held),
        exact=all(one.exact for one in held),
        size_bytes=sum(one.file.size_bytes * one.rows // one.file.rows for one in held),
        files=len(held),
        runs=len({one.run for one in held}),
        markers=sum(one.file.markers for one in held),
    )


@dataclass(frozen=True, slots=True)
class UnreferencedFiles:
    """Files that older versions need, or that wait for garbage collection, and their bytes."""

    files: int
    size_bytes: int


def unreferenced_files(state: TableState) -> UnreferencedFiles:
    """Return the number and bytes of the files that no partition refers to, and that are not purged."""
    base, changes = state.files.base, state.files.changes
    if not isinstance(base, Columns):
        return _summed(state.files.values())
    # In a segment these files alone have facts of their own.
    facts = [segment.rows().batch.column("file").flatten() for segment in base.segments]
    size_bytes = sum(int(_numbers(one.field("size_bytes")).sum()) for one in facts)
    before, now = _summed(base.get(key) for key in changes), _summed(changes.values())
    return UnreferencedFiles(
        sum(map(len, facts)) - before.files + now.files, size_bytes - before.size_bytes + now.size_bytes
    )


def _summed(files: Iterable[CommittedFile | None]) -> UnreferencedFiles:
    sizes = [one.file.size_bytes for one in files if one is not None and one.file is not None]
    return UnreferencedFiles(len(sizes), sum(sizes))


def partition_sums(state: TableState) -> Mapping[int, PartitionSums]:
    """Return the sums of every partition that has references, by its id. They are computed once for a state."""
    return state.references.sums(lambda: _partition_sums(state))


def _partition_sums(state: TableState) -> dict[int, PartitionSums]:
    batches, held = _split(state)
    changes = state.references.changes
    found = {one.partition: one for batch in batches for one in _batch_sums(batch) if one.partition not in changes}
    return found | {partition: sums_of(partition, every) for partition, every in held.items()}


def newest_files(state: TableState) -> dict[int, int]:
    """Return the time of the newest file of every partition with references, in microseconds since 1970, by its id."""
    batches, held = _split(state)
    changes = state.references.changes
    found = {partition: max(one.file.last_modified_us for one in every) for partition, every in held.items() if every}
    for batch in batches:
        times = _numbers(batch.column("files").flatten().field("last_modified_us"))
        edges = _edges(batch.column("file"))
        # No partition has an empty list, so each maximum is over one partition's files.
        newest = np.maximum.reduceat(times[_numbers(batch.column("file").flatten())], edges[:-1])
        partitions = batch.column("partition").to_pylist()
        found.update((at, time) for at, time in zip(partitions, newest.tolist(), strict=True) if at not in changes)
    return found


class RowEstimate(NamedTuple):
    """A number of rows, and its maximum error; 0 if the number is exact."""

    rows: int
    error_rows: int


def table_rows(state: TableState) -> RowEstimate:
    """Return the number of rows of the table's files.

    The estimated shares of a file add up to its rows minus its exact shares and minus its removed rows.
    """
    sums = partition_sums(state).values()
    rows = sum(one.rows for one in sums)
    if all(one.exact for one in sums):
        return RowEstimate(rows, 0)
    partitions = state.partitions
    files = {name: (rows, low, high) for name, rows, low, high in _estimated(state)}
    exact, estimated = _shares(state, files)
    error_rows = 0
    for name, (file_rows, low, high) in files.items():
        rows_max, estimate = max(0, file_rows - exact[name]), estimated[name]
        if state.files[name].references == partitions.position(high) - partitions.position(low) + 1:
            # All partitions that the file reaches refer to it, so no rows of it were removed.
            rows += rows_max - estimate
        else:
            error_rows += max(estimate, rows_max - estimate)
    return RowEstimate(rows, error_rows)


def file_sizes(state: TableState) -> dict[str, int]:
    """Return the bytes of every file that a partition refers to, by its id."""
    return _of_files(state, "size_bytes")


def file_jobs(state: TableState) -> dict[str, str]:
    """Return the jobs that wrote the files that partitions refer to, by the file's id."""
    return _of_files(state, "job")


def _of_files(state: TableState, fact: str) -> dict[str, Any]:
    batches, held = _split(state)
    found = {one.file.id: getattr(one.file, fact) for every in held.values() for one in every}
    for batch in batches:
        files, used = batch.column("files").flatten(), _used(state, batch)
        names, facts = (span_reader(files.field(name))(0, len(files)) for name in ("id", fact))
        found.update((name, value) for name, value, there in zip(names, facts, used, strict=True) if there)
    return found


def _estimated(state: TableState) -> Iterator[tuple[str, int, bytes, bytes]]:
    """Return id, rows and bounds of the files with an estimated share; a file may occur several times."""
    batches, held = _split(state)
    for one in (one for every in held.values() for one in every if not one.exact):
        yield one.file.id, one.file.rows, one.file.min_key, one.file.max_key
    for batch in batches:
        files = batch.column("files").flatten()
        estimates = ~_truths(batch.column("exact").flatten()) & _unchanged_references(state, batch)
        names, low, high = (span_reader(files.field(name))(0, len(files)) for name in ("id", "min_key", "max_key"))
        rows = _numbers(files.field("rows"))
        for position in np.unique(_numbers(batch.column("file").flatten())[estimates]).tolist():
            yield names[position], int(rows[position]), low[position], high[position]


def _shares(state: TableState, names: Container[str]) -> tuple[Counter[str], Counter[str]]:
    """Return the rows of some files in all partitions, by the file's id: (exact shares, estimated shares)."""
    batches, held = _split(state)
    certain, estimated = Counter[str](), Counter[str]()
    for one in (one for every in held.values() for one in every if one.file.id in names):
        (certain if one.exact else estimated)[one.file.id] += one.rows
    for batch in batches:
        files, kept = batch.column("files").flatten(), _unchanged_references(state, batch)
        exact = _truths(batch.column("exact").flatten())
        positions, rows = _numbers(batch.column("file").flatten()), _numbers(batch.column("rows").flatten())
        file_names = span_reader(files.field("id"))(0, len(files))
        for found, counted in ((certain, kept & exact), (estimated, kept & ~exact)):
            sums = np.zeros(len(files), np.int64)
            np.add.at(sums, positions[counted], rows[counted])
            found.update({name: share for name, share in zip(file_names, sums.tolist(), strict=True) if name in names})
    return certain, estimated


def _split(state: TableState) -> tuple[Iterator[pa.RecordBatch], dict[int, tuple[PartitionFile, ...]]]:
    """Return the references of a state: segments, valid for unchanged partitions, and those of changed ones."""
    references = state.references
    changed = {partition: held for partition, held in references.changes.items() if held}
    if isinstance(references.base, Columns):
        return (segment.rows().batch for segment in references.base.segments), changed
    return iter(()), dict(references)


def _batch_sums(batch: pa.RecordBatch) -> Iterator[PartitionSums]:
    positions = _numbers(batch.column("file").flatten())
    rows = _numbers(batch.column("rows").flatten())
    exact = _truths(batch.column("exact").flatten())
    files = batch.column("files").flatten()
    file_rows, size_bytes = _numbers(files.field("rows"))[positions], _numbers(files.field("size_bytes"))[positions]
    # Equals size * rows // file_rows, in two steps that do not overflow.
    shares = size_bytes // file_rows * rows + size_bytes % file_rows * rows // file_rows
    edges = _edges(batch.column("file"))
    partitions = np.repeat(np.arange(batch.num_rows), np.diff(edges))
    numbered: dict[str, int] = {}
    names = span_reader(files.field("run"))(0, len(files))
    codes = np.array([numbered.setdefault(name, len(numbered)) for name in names], np.int64)
    pairs = np.unique(partitions * len(codes) + codes[positions])
    runs = np.bincount(pairs // len(codes), minlength=batch.num_rows)
    columns = (
        _numbers(batch.column("partition")),
        _sums_between(rows, edges),
        _sums_between(~exact, edges) == 0,
        _sums_between(shares, edges),
        np.diff(edges),
        runs,
        _sums_between(_numbers(files.field("markers"))[positions], edges),
    )
    return map(PartitionSums, *(column.tolist() for column in columns))


def _edges(column: pa.ListArray) -> Any:
    offsets = _numbers(column.offsets)
    return offsets - offsets[0]


def _sums_between(values: Any, edges: Any) -> Any:
    """Return the sums of the values between consecutive edges."""
    running = np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
    return running[edges[1:]] - running[edges[:-1]]


def _numbers(column: pa.Array) -> Any:
    """Return the numbers of an int64 or int32 column, without a copy."""
    kind = np.int64 if column.type.bit_width == 64 else np.int32
    return np.frombuffer(column.buffers()[1] or b"", kind)[column.offset : column.offset + len(column)]


def _truths(column: pa.BooleanArray) -> Any:
    bits = np.unpackbits(np.frombuffer(column.buffers()[1] or b"", np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].astype(bool)


def _unchanged_references(state: TableState, batch: pa.RecordBatch) -> Any:
    """Return for each reference of a segment whether its partition is unchanged since."""
    changes = state.references.changes
    kept = np.array([partition not in changes for partition in batch.column("partition").to_pylist()], bool)
    return np.repeat(kept, np.diff(_edges(batch.column("file"))))


def _used(state: TableState, batch: pa.RecordBatch) -> Any:
    """Return for each file of a segment whether an unchanged partition refers to it."""
    positions = _numbers(batch.column("file").flatten())[_unchanged_references(state, batch)]
    return np.bincount(positions, minlength=len(batch.column("files").flatten())) > 0
