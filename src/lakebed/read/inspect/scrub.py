"""Scrub: read the data files that a table uses whole and compare them with its state, for a deep verification.

A digest detects bytes that a store changed, but not a file that was wrong when it was written. So every row of a file
with a correct digest is decoded and checked: its order, the bounds of keys, nulls, values that their type does not
allow, the number of rows, the rows of each partition that refers to the file, and the ranks in its summary.

A file that cannot be read is a finding; only an unreachable store raises. Files are read in parallel. Memory is
bounded: each file is decoded in batches of about 16 MiB, one column page at a time.

Core types. :class:`Used`, :class:`Scrubbed`.

*Check the rows of one data file against the table state. No I/O: the caller adds the batches in order.*

Checks that depend on the order of rows end at the first row out of order: ranks are meaningless after it.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error, NotFoundError, StorageError
from lakebed.files.parquet.ranks import RankNotes
from lakebed.files.parquet.stored_file import locate_damage
from lakebed.files.sorting.merge_inputs import stored_id
from lakebed.model.files import data_name, decode_bounds, summary_name
from lakebed.model.findings import Deep, Finding, damage
from lakebed.model.key_columns import comparable
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import KeyCodec
from lakebed.model.row_kinds import KIND, RowKind
from lakebed.model.validity import invalid, reason
from lakebed.storage.digests import digest_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow.parquet as pq

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.keys import EncodedRange
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Field, Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Storage

WRITE_AGAIN = (
    "reads with a predicate on {field} may miss rows of it, others do not. Export the rows of the table, and import "
    "them into a new one"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a file. ``what`` is read after the file's name; ``remedy`` is "" for the usual one."""

    kind: str
    what: str
    remedy: str = ""


class RowsCheck:
    """The check of one file. ``slices`` are its references and the key ranges of their partitions.

    By a ``mode`` that merges rows, a file has at most one row for each key that they are merged by. Call
    :meth:`columns` first, then :meth:`add` for each batch.
    """

    def __init__(
        self,
        file: DataFile,
        slices: Sequence[tuple[EncodedRange, PartitionFile]],
        schema: Schema,
        summary: Summary | None,
        mode: MergeMode,
    ) -> None:
        self.rows = 0
        self._markers = 0
        merged_by = mode.merge_key(schema)
        self._merge_codec = KeyCodec(tuple(schema.by_name[name] for name in merged_by)) if merged_by else None
        self._last_merged: bytes | None = None
        self._file = file
        self._slices = slices
        self._schema = schema
        self._summary = summary
        self._keys = (*schema.row_key, *schema.sort_key)
        self._codec = KeyCodec(self._keys)
        self._bounded: list[tuple[Field, KeyCodec, EncodedRange]] = []
        self._names: dict[int, str] = {}
        self._last: bytes | None = None
        self._is_ordered = True
        self._problems: dict[tuple[str, str], Problem] = {}
        bounds = {bound for keys, _ in slices for bound in (keys.min, keys.max) if bound is not None}
        cuts = sorted(bounds.union(summary.keys if summary is not None else ()))
        self._ranks = RankNotes(schema.codec, cuts, rows_estimate=file.rows)

    def columns(self, stored: pa.Schema) -> None:
        """Check the columns of the file. Raises DamagedError if what the table has as bounds of fields is malformed."""
        later, bounds = self._keys[1:], decode_bounds(self._file.bounds)
        self._bounded = [(field, KeyCodec((field,)), held) for field, held in zip(later, bounds, strict=False)]
        self._names = {number: column.name for column in stored if (number := stored_id(column)) is not None}
        missing = [field.name for field in self._keys if field.id not in self._names]
        if missing:
            self._note("columns", "", f"has no column with the field id of key field {missing[0]}")

    def add(self, batch: pa.RecordBatch) -> None:
        """Check the next rows. Raises ArrowException if they are malformed."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            bad = invalid(column)
            if bad is not None:
                row = pc.index(bad, value=True).as_py()
                why = reason(column, row)
                if name in (self._names.get(field.id) for field in self._keys):
                    self._is_ordered = False
                self._note("invalid_value", name, f"holds {why} in column {name}, first in row {self.rows + row:,}")
        if KIND in batch.schema.names:
            kinds = batch.column(KIND)
            self._markers += pc.sum(pc.not_equal(kinds, pa.scalar(RowKind.WHOLE, kinds.type))).as_py() or 0
        if batch.num_rows and all(field.id in self._names for field in self._keys):
            self._add_keys(batch)
        self.rows += batch.num_rows

    def so_far(self) -> Iterator[Problem]:
        """Return the problems of the rows that were added."""
        yield from self._problems.values()

    def problems(self) -> Iterator[Problem]:
        """Return all problems, after all rows were added."""
        file = self._file
        yield from self.so_far()
        if self.rows != file.rows:
            what = f"has {self.rows:,} rows, where the table has it with {file.rows:,}"
            yield Problem("row_count", what)
        if self._markers != file.markers:
            what = f"has {self._markers:,} deletes and partial rows, where the table has it with {file.markers:,}"
            yield Problem("markers", what)
        if not self._is_ordered or not self._ranks.rows or self._ranks.rows != self.rows:
            return
        for which, found, expected in (
            ("least", self._ranks.min_key, file.min_key),
            ("greatest", self._ranks.max_key, file.max_key),
        ):
            if found != expected:
                yield Problem(
                    "bounds", f"has {self._key(found)} as its {which} key, where the table has {self._key(expected)}"
                )
        yield from self._check_ranks()

    def _check_ranks(self) -> Iterator[Problem]:
        ranks = self._ranks.summary()
        for keys, held in self._slices:
            low, exact_low = ranks.rank(keys.min)
            high, exact_high = (ranks.rows, True) if keys.max is None else ranks.rank(keys.max)
            assert exact_low, "the ends of slices are cuts of the notes"
            assert exact_high, "the ends of slices are cuts of the notes"
            if held.exact and held.rows != high - low:
                yield Problem(
                    "reference_rows",
                    f"has {high - low:,} rows with keys of a partition that counts {held.rows:,} of it as exact",
                    "no row is lost, and counts of the table are wrong by that; report this",
                )
        summary = self._summary
        if summary is None:
            return
        if (summary.rows, summary.max_key) != (ranks.rows, ranks.max_key):
            yield Problem(
                "summary_false", f"is of {summary.rows:,} rows up to {self._key(summary.max_key)}: not its own"
            )
            return
        false = sum(ranks.rank(key) != (rank, True) for key, rank in zip(summary.keys, summary.ranks, strict=True))
        if false:
            yield Problem("summary_false", f"has {false:,} of its {len(summary.keys):,} ranks wrong")

    def _add_keys(self, batch: pa.RecordBatch) -> None:
        columns = []
        for field in self._keys:
            column = batch.column(self._names[field.id])
            if column.null_count:
                row = pc.index(column.is_null(), value=True).as_py()
                self._is_ordered = False
                self._note(
                    "null_key", field.name, f"has a null in key field {field.name}, first in row {self.rows + row:,}"
                )
                return
            # Parquet has no seconds: they are read as milliseconds.
            columns.append(column if column.type == field.type else column.cast(field.type))
        keys = pa.Table.from_arrays(columns, names=[field.name for field in self._keys])
        row = self._first_out_of_order(keys) if self._is_ordered else None
        if row is not None:
            self._is_ordered = False
            self._note("order", "", f"is not in order: row {row:,} has a lesser key than the one before it")
        if self._merge_codec is not None:
            self._check_doubled(keys, self._merge_codec)
        self._check_field_bounds(keys)
        row_keys = keys.select(list(self._schema.row_key_names))
        if self._is_ordered:
            self._ranks.add(row_keys)
        else:
            self._check_bounds(row_keys)

    def _first_out_of_order(self, keys: pa.Table) -> int | None:
        """Return the number of the first row whose key is less than that of the row before; None if there is none."""
        first, last = self._codec.encode_row(keys, 0), self._codec.encode_row(keys, keys.num_rows - 1)
        fallen = self._last is not None and first < self._last
        self._last = last
        if fallen:
            return self.rows
        falls, same = None, None
        for column in keys.columns:
            values = comparable(column.chunk(0))
            less = pc.less(values[1:], values[:-1])
            falls = less if same is None else pc.or_(falls, pc.and_(same, less))
            equal = pc.equal(values[1:], values[:-1])
            same = equal if same is None else pc.and_(same, equal)
            if not pc.any(same).as_py():
                break
        row = pc.index(falls, value=True).as_py()
        return None if row < 0 else self.rows + row + 1

    def _check_doubled(self, keys: pa.Table, merged_by: KeyCodec) -> None:
        """Look for neighbouring rows that should have been merged before the file was written."""
        columns = [comparable(keys.column(field.name).chunk(0)) for field in merged_by.fields]
        doubled = reduce(pc.and_, [pc.equal(values[1:], values[:-1]) for values in columns])
        row = pc.index(doubled, value=True).as_py() + 1
        if self._last_merged == merged_by.encode_row(keys, 0):
            row = 0
        elif not row:
            row = None
        self._last_merged = merged_by.encode_row(keys, keys.num_rows - 1)
        if row is not None:
            names = ", ".join(field.name for field in merged_by.fields)
            self._note("doubled_key", "", f"has more than one row with equal {names}, first in row {self.rows + row:,}")

    def _check_field_bounds(self, keys: pa.Table) -> None:
        """Compare the values of each field after the first with the bounds by which reads leave the file out."""
        for field, codec, held in self._bounded:
            extremes = pc.min_max(codec.encode_columns(keys.select([field.name]))).as_py().values()
            if not all(map(held.contains, extremes)):
                what = f"has values of {field.name} outside of the bounds that the table has of that field"
                self._note("field_bounds", field.name, what, WRITE_AGAIN.format(field=field.name))

    def _check_bounds(self, row_keys: pa.Table) -> None:
        """Compare every key with the bounds, because the rows are not in order."""
        extremes = pc.min_max(self._schema.codec.encode_columns(row_keys)).as_py()
        if extremes["min"] < self._file.min_key or extremes["max"] > self._file.max_key:
            self._note("bounds", "", "has keys outside of the bounds that the table has of it")

    def _key(self, encoded: bytes) -> str:
        try:
            values = self._schema.codec.decode_values(encoded)
        except (UnicodeDecodeError, ValueError):
            return encoded.hex()
        return str(tuple(values.values()))

    def _note(self, kind: str, which: str, what: str, remedy: str = "") -> None:
        """Keep the first problem of each kind and field."""
        self._problems.setdefault((kind, which), Problem(kind, what, remedy))


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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
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
        return None if data is None else Summary.from_ipc(data, name), []
    except DamagedError as error:
        return None, [damage("summary_damaged", error.message.partition(";")[0], remedy)]
    except StorageError as error:
        if error.facts.get("transient"):
            raise
        return None, [damage("summary_damaged", f"{name} cannot be read: {error.message}", remedy)]


def _check_rows(path: Path, check: RowsCheck, *, use_threads: bool) -> Iterator[Problem]:
    """Return the problems of the rows of a file whose bytes have the right digest."""
    import pyarrow.parquet as pq

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
