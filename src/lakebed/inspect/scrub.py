"""Scrub: data files are read whole and compared with what the table says of them, for a deep verification.

A digest finds bytes that a store changed, but not a file that was wrong when it was written. So every row of a file
with a correct digest is decoded and checked: its order, the bounds of keys, nulls, values that their type does not
allow, the number of rows, the rows of each partition that refers to the file, and the ranks in its summary.

Only an unreachable store raises: a file that cannot be read is a finding. Files are read in parallel. Memory is
bounded: each file is decoded in batches of about 16 MiB, one column page at a time.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import Code, DamagedError, Error, NotFoundError, StorageError
from lakebed.inspect.rows_check import Problem, RowsCheck
from lakebed.model.files import data_name, summary_name
from lakebed.model.findings import Deep, Finding, damage
from lakebed.model.key_summaries import Summary
from lakebed.parquet.damage import locate_damage
from lakebed.storage.digests import digest_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from lakebed.inspect.used_files import Used
    from lakebed.model.files import DataFile
    from lakebed.state.table_state import TableState
    from lakebed.storage.contract import Storage

BATCH_BYTES = 16 * 1024 * 1024
BATCH_ROWS_MAX = 65_536
READ_BYTES = 1024 * 1024
"""A column chunk is read in parts of this size, and not whole."""

FETCHED_AT_ONCE = 4
"""Files of a store that are copied to local disk at the same time, to be read there."""


@dataclass(frozen=True, slots=True)
class _How:
    """Whether rows are decoded, and each file by several threads: where there are fewer files than cores."""

    rows: bool
    use_threads: bool


REWRITE = (
    "reads by key may miss rows of it. Read the object itself, take its range of keys out with `lakebed remove`, and "
    "write its rows again"
)


def scrub(storage: Storage, state: TableState, used: Sequence[Used], deep: Deep) -> list[tuple[Used, Finding]]:
    """Read files whole, and say what is wrong with each.

    Raises StorageError if the store is out of reach for a while: then nothing is known.
    """
    progress = deep.progress
    total, done = sum(one.file.size_bytes for one in used), 0
    if progress is not None:
        progress(0, total)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_once = cores if storage.url.startswith("file://") else max(cores, FETCHED_AT_ONCE)
    how = _How(deep.rows, use_threads=len(used) < cores)
    found: list[tuple[Used, Finding]] = []
    threads = ThreadPoolExecutor(at_once, "lakebed-scrub")
    try:
        looked_at = threads.map(lambda one: list(_scrub_one(storage, state, one, how)), used)
        for one, findings in zip(used, looked_at, strict=True):
            found += ((one, finding) for finding in findings)
            done += one.file.size_bytes
            if progress is not None:
                progress(done, total)
    finally:
        # Whoever stops it waits for the files that are being read, and for no others.
        threads.shutdown(cancel_futures=True)
    return found


def _scrub_one(storage: Storage, state: TableState, used: Used, how: _How) -> Iterator[Finding]:
    """What is wrong with one file. Raises as :func:`scrub`."""
    file = used.file
    name = data_name(state.table, file)
    summary, findings = _summary(storage, state.table, file)
    yield from findings
    try:
        with storage.fetch(name) as path:
            amiss = _bytes_amiss(path, file, name)
            if amiss is not None:
                error = locate_damage(Code.DATA_FILE_DAMAGED(amiss), storage, state.table, file)
                yield damage("file_damaged", error.message, _RESTORE_OR_REMOVE)
                return
            if how.rows:
                check = RowsCheck(file, used.slices, state.created, summary)
                yield from (_told(name, problem) for problem in _rows_amiss(path, check, use_threads=how.use_threads))
    except NotFoundError:
        yield damage("file_missing", f"{name} is not there", _RESTORE_OR_REMOVE)
    except StorageError as error:
        if error.facts.get("transient"):
            raise
        yield damage("file_unreadable", f"{name} cannot be read: {error.message}", _RESTORE_OR_REMOVE)
    except (OSError, MemoryError) as error:
        yield damage("file_unreadable", f"{name} cannot be read: {error}", _RESTORE_OR_REMOVE)


_RESTORE_OR_REMOVE = (
    "restore the object from a copy; without one, take its range of keys out with `lakebed remove` and write the rows "
    "again"
)


def _bytes_amiss(path: Path, file: DataFile, name: str) -> str | None:
    found = digest_file(path)
    if found.size_bytes != file.size_bytes:
        return f"{name} has {found.size_bytes} bytes; {file.size_bytes} were written"
    if found.digest != file.digest:
        return f"{name} is damaged: its digest is {found.digest}, {file.digest} was written"
    return None


def _summary(storage: Storage, table_id: str, file: DataFile) -> tuple[Summary | None, list[Finding]]:
    """The summary beside a file, if there is one that can be read; and what is wrong with it."""
    name = summary_name(table_id, file)
    remedy = "delete it: it is made again from its file when it is needed"
    try:
        data = storage.get(name) if file.summarised else None
        return None if data is None else Summary.from_ipc(data, name), []
    except DamagedError as error:
        return None, [damage("summary_damaged", error.message.partition(";")[0], remedy)]
    except StorageError as error:
        if error.facts.get("transient"):
            raise
        return None, [damage("summary_damaged", f"{name} cannot be read: {error.message}", remedy)]


def _rows_amiss(path: Path, check: RowsCheck, *, use_threads: bool) -> Iterator[Problem]:
    """What is wrong with the rows of a file whose bytes are as they were written."""
    try:
        with pq.ParquetFile(path) as looked_at:
            repeated = _repeated(looked_at.metadata)
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


def _repeated(metadata: pq.FileMetaData) -> list[str]:
    """Columns of text or bytes that are stored as dictionaries: read as such, a value that repeats is held once."""
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


def _told(name: str, problem: Problem) -> Finding:
    if problem.kind == "summary_false":
        remedy = "delete the summary: it is made again from its file when it is needed"
        return damage(problem.kind, f"the summary of {name} {problem.what}", remedy)
    return damage(problem.kind, f"{name} {problem.what}", problem.remedy or REWRITE)
