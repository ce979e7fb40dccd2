"""Scrub: read the data files that a table uses whole and compare them with its state, for a deep verification.

A digest detects bytes that a store changed, but not a file that was wrong when it was written. So every row of a file
with a correct digest is decoded and checked: its order, the bounds of keys, nulls, values that their type does not
allow, the number of rows, the rows of each partition that refers to the file, and the ranks in its summary.

A file that cannot be read is a finding; only an unreachable store raises. Files are read in parallel. Memory is
bounded: each file is decoded in batches of about 16 MiB, one column page at a time.

Core types. :class:`Used`, :class:`Scrubbed`.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error, NotFoundError, StorageError
from lakebed.files.parquet.stored_file import locate_damage
from lakebed.model.files import data_name, summary_name
from lakebed.model.findings import Deep, Finding, damage
from lakebed.model.key_summaries import Summary
from lakebed.storage.digests import digest_file
from lakebed.system import available_cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow.parquet as pq

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.keys import EncodedRange
    from lakebed.model.state.table_state import TableState
    from lakebed.read.inspect.rows_check import Problem, RowsCheck
    from lakebed.storage.contract import Storage

BATCH_BYTES = 16 * 1024 * 1024
BATCH_ROWS_MAX = 65_536
READ_BYTES = 1024 * 1024
"""A column chunk is read in parts of this size."""

FETCHED_AT_ONCE = 4
"""Files of an object store that are copied to local disk in parallel."""


@dataclass(frozen=True, slots=True)
class Used:
    """A data file, and the key ranges and references of the partitions that refer to it."""

    file: DataFile
    slices: tuple[tuple[EncodedRange, PartitionFile], ...]

    @property
    def rows(self) -> int:
        """The number of its rows that belong to the table."""
        return sum(held.rows for _, held in self.slices)


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """How many of the files were read (``of_files``: all), with their bytes and rows; ``seed`` chose a sample."""

    files: int
    of_files: int
    size_bytes: int
    of_bytes: int
    rows: int
    seed: int | None


@dataclass(frozen=True, slots=True)
class _Options:
    """Whether rows are decoded, and whether by several threads a file (if there are fewer files than cores)."""

    rows: bool
    use_threads: bool


REWRITE = (
    "reads by key may miss rows of it. Read the object itself, remove its range of keys with `lakebed remove`, and "
    "write its rows again"
)


def used_files(state: TableState) -> list[Used]:
    """Return all files that partitions refer to."""
    found: dict[str, list[tuple[EncodedRange, PartitionFile]]] = {}
    for position, partition in enumerate(state.partitions.ids):
        keys = state.partitions.range_at(position)
        for held in state.held_by(partition):
            found.setdefault(held.file.id, []).append((keys, held))
    return [Used(slices[0][1].file, tuple(slices)) for slices in found.values()]


def sampled(used: Sequence[Used], share: float, seed: int) -> list[Used]:
    """Return a random sample of the files with at least that share of all bytes, and at least one file. Pure."""
    chance = clock.chance(seed)
    # By their ids, so that a seed chooses the same files whatever the partitions are.
    order = sorted(used, key=lambda one: one.file.id)
    chance.shuffle(order)
    wanted = share * sum(one.file.size_bytes for one in used)
    before = accumulate((one.file.size_bytes for one in order), initial=0)
    return [one for one, size_bytes in zip(order, before, strict=False) if size_bytes < wanted]


def located_in(finding: Finding, used: Used, state: TableState, storage: Storage) -> Finding:
    """Return the finding with its file's id, object, keys and rows."""
    codec, file = state.created.codec, used.file
    finding = replace(finding, remedy=finding.remedy + _still_readable(file, state)) if finding.damage else finding
    return replace(
        finding,
        file=file.id,
        object=storage.object_url(data_name(state.table, file)),
        min_key=codec.decode_values(file.min_key),
        max_key=codec.decode_values(file.max_key),
        rows=used.rows,
    )


def _still_readable(file: DataFile, state: TableState) -> str:
    """Return a remedy if the rows of a file are still in the files from which it was merged; else ""."""
    added = state.files[file.id].added
    merged = (one for one in state.files.values() if one.dropped == added and not one.retired and one.file is not None)
    if (
        added > 1
        and state.retains(added - 1)
        and any(one.facts.max_key >= file.min_key and one.facts.min_key <= file.max_key for one in merged)
    ):
        return f"; its rows can still be read as they were before it was made, at version {added - 1}: tag that version"
    return ""


def scrub(storage: Storage, state: TableState, used: Sequence[Used], deep: Deep) -> list[tuple[Used, Finding]]:
    """Read files whole; return the findings about each.

    Raises StorageError if the store cannot be reached.
    """
    progress = deep.progress
    total, done = sum(one.file.size_bytes for one in used), 0
    if progress is not None:
        progress(0, total)
    cores = available_cores()
    at_once = cores if storage.locality.near else max(cores, FETCHED_AT_ONCE)
    options = _Options(deep.rows, use_threads=len(used) < cores)
    found: list[tuple[Used, Finding]] = []
    threads = ThreadPoolExecutor(at_once, "lakebed-scrub")
    try:
        looked_at = threads.map(lambda one: list(_scrub_one(storage, state, one, options)), used)
        for one, findings in zip(used, looked_at, strict=True):
            found += ((one, finding) for finding in findings)
            done += one.file.size_bytes
            if progress is not None:
                progress(done, total)
    finally:
        # An interrupt waits for the files that are being read, and for no others.
        threads.shutdown(cancel_futures=True)
    return found


def _scrub_one(storage: Storage, state: TableState, used: Used, options: _Options) -> Iterator[Finding]:
    """Return the findings about one file. Raises as :func:`scrub`."""
    file = used.file
    name = data_name(state.table, file)
    summary, findings = _summary(storage, state.table, file)
    yield from findings
    try:
        with storage.fetch(name) as path:
            fault = _fault_of_bytes(path, file, name)
            if fault is not None:
                error = locate_damage(Code.DATA_FILE_DAMAGED(fault), storage, state.table, file)
                yield damage("file_damaged", error.message, _RESTORE_OR_REMOVE)
                return
            if options.rows:
                # Imports what decodes Parquet, which a verification of names and sizes does not need.
                from lakebed.read.inspect.rows_check import RowsCheck

                check = RowsCheck(file, used.slices, state.created, summary, state.merge)
                yield from (
                    _finding(name, problem) for problem in _check_rows(path, check, use_threads=options.use_threads)
                )
    except NotFoundError:
        yield damage("file_missing", f"{name} is missing", _RESTORE_OR_REMOVE)
    except StorageError as error:
        if error.facts.get("transient"):
            raise
        yield damage("file_unreadable", f"{name} cannot be read: {error.message}", _RESTORE_OR_REMOVE)
    except (OSError, MemoryError) as error:
        yield damage("file_unreadable", f"{name} cannot be read: {error}", _RESTORE_OR_REMOVE)


_RESTORE_OR_REMOVE = (
    "restore the object from a copy; without one, remove its range of keys with `lakebed remove` and write the rows "
    "again"
)


def _fault_of_bytes(path: Path, file: DataFile, name: str) -> str | None:
    found = digest_file(path)
    if found.size_bytes != file.size_bytes:
        return f"{name} has {found.size_bytes} bytes; {file.size_bytes} were written"
    if found.digest != file.digest:
        return f"{name} is damaged: its digest is {found.digest}, {file.digest} was written"
    return None


def _summary(storage: Storage, table_id: str, file: DataFile) -> tuple[Summary | None, list[Finding]]:
    """Return the summary of a file, if it can be read, and the findings about it."""
    name = summary_name(table_id, file)
    remedy = "delete it: it is computed from its file when it is needed"
    try:
        data = storage.get(name) if file.summarised else None
        return None if data is None else Summary.of(file, data, name), []
    except DamagedError as error:
        return None, [damage("summary_damaged", error.message.partition(";")[0], remedy)]
    except StorageError as error:
        if error.facts.get("transient"):
            raise
        return None, [damage("summary_damaged", f"{name} cannot be read: {error.message}", remedy)]


def _check_rows(path: Path, check: RowsCheck, *, use_threads: bool) -> Iterator[Problem]:
    """Return the problems of the rows of a file whose bytes have the right digest."""
    import pyarrow.parquet as pq

    from lakebed.read.inspect.rows_check import Problem

    try:
        with pq.ParquetFile(path) as opened:
            repeated = _dictionary_columns(opened.metadata)
        with pq.ParquetFile(path, buffer_size=READ_BYTES, pre_buffer=False, read_dictionary=repeated) as parquet:
            check.columns(parquet.schema_arrow)
            for group in range(parquet.num_row_groups):
                facts = parquet.metadata.row_group(group)
                row_bytes = max(1, facts.total_byte_size // max(1, facts.num_rows))
                rows = min(BATCH_ROWS_MAX, max(1, BATCH_BYTES // row_bytes))
                for batch in parquet.iter_batches(rows, row_groups=[group], use_threads=use_threads):
                    check.add(batch)
    except (pa.ArrowException, OSError, ValueError, EOFError, Error) as error:
        yield from check.so_far()
        yield Problem("file_undecodable", f"cannot be decoded behind row {check.rows:,}: {_line(error)}")
        return
    yield from check.problems()


def _dictionary_columns(metadata: pq.FileMetaData) -> list[str]:
    """Return columns of text or bytes that are stored as dictionaries, and are read as such to save memory."""
    found: set[str] = set()
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            if chunk.physical_type == "BYTE_ARRAY" and any("DICTIONARY" in encoding for encoding in chunk.encodings):
                found.add(chunk.path_in_schema)
    return sorted(found)


def _line(error: BaseException) -> str:
    text = ""
    with suppress(Exception):
        text = " ".join(str(error).split())
    return text[:300] or type(error).__name__


def _finding(name: str, problem: Problem) -> Finding:
    if problem.kind == "summary_false":
        remedy = "delete the summary: it is computed from its file when it is needed"
        return damage(problem.kind, f"the summary of {name} {problem.what}", remedy)
    return damage(problem.kind, f"{name} {problem.what}", problem.remedy or REWRITE)
