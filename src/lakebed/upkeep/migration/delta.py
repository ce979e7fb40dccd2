"""Tables of Delta Lake, read by the package ``deltalake``, which applies deletion vectors and renamed columns.

That package reads a whole table, not single files. So tasks read the files themselves, with the deletion vectors that
it returned. They cannot read a table with renamed columns (column mapping), or one whose files are elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code, Error
from lakebed.model.foreign_errors import optional_imports, translate_errors
from lakebed.storage.external import library_options
from lakebed.upkeep.migration.foreign_table import (
    FilePart,
    ForeignTable,
    ParquetPart,
    SourceFolder,
    SourceLocation,
    library_text,
    plain_schema,
    unreadable,
    unsupported,
)

_COMMIT = re.compile(r"(\d{20})\.(json|checkpoint\b.*)")
"""The names of files of the log that have a version."""

_READ_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features of tables whose files tasks can read. Column mapping is included as long as it is off."""


def open_delta(location: SourceLocation) -> ForeignTable:
    """Open the table at its latest version, or at ``location.version``. Raises UsageError if it cannot be read."""
    with optional_imports():
        from deltalake import DeltaTable

    _check_log(location)
    with translate_errors(partial(_translated, location)):
        options = library_options(location.url, location.home)
        table = DeltaTable(location.url, version=location.number(), storage_options=options or None)
        schema = plain_schema(pa.schema(table.schema().to_arrow()))
        rows = _row_count(table)

    def batches() -> Iterator[pa.RecordBatch]:
        with unreadable(location, str(table.version())):
            yield from pa.RecordBatchReader.from_stream(table.scan(columns=schema.names))

    def parts() -> list[FilePart]:
        with unsupported(location):
            return _file_parts(table, schema, location)

    def since(before: str) -> ForeignTable | None:
        earlier = replace(location, version=before)
        if int(before) not in _versions(earlier) or _unread_features(table):
            return None
        with translate_errors(partial(_translated, earlier)):
            old = DeltaTable(location.url, version=int(before), storage_options=options or None)
            files_before, rows_before = _files(old), _row_count(old)
            files = _files(table)
        if not files_before.items() <= files.items():
            return None
        added = [part for part in parts() if part.part.path not in files_before]
        return opened.with_parts(added, None if rows is None or rows_before is None else rows - rows_before)

    origin = f"{location.identity} {table.metadata().id}"
    opened = ForeignTable(location.url, str(table.version()), schema, rows, batches, parts, origin, since=since)
    return opened


def _versions(location: SourceLocation) -> range:
    """Return the versions from the first to the last file of the log; empty if it has none."""
    names = [path.rpartition("/")[2] for path in SourceFolder(location).list_if_any("_delta_log")]
    versions = {int(found[1]) for name in names if (found := _COMMIT.match(name))}
    return range(min(versions), max(versions) + 1) if versions else range(0)


def _check_log(location: SourceLocation) -> None:
    """Raise NotFoundError if there is no table, or not this version of it; the library's words for both are its own."""
    versions = _versions(location)
    if not versions:
        raise Code.SOURCE_NOT_FOUND(
            f"no table of Delta Lake at {location.url}: it has no _delta_log with a commit; a folder of Parquet files "
            "is read with --from hive",
            name=location.url,
        )
    number = location.number()
    if number is not None and number not in versions:
        raise Code.SOURCE_NOT_FOUND(
            f"{location.url} has no version {number}; there are {versions[0]} to {versions[-1]}", name=location.url
        )


def _translated(location: SourceLocation, error: BaseException) -> Error:
    """Return the error of a log that cannot be opened."""
    text = library_text(error)
    if "nsupported" in text or "not supported" in text:
        return Code.SOURCE_UNSUPPORTED(
            f"{location.url} needs what Delta's library for Python does not support: {text}; read it with `lakebed "
            "import --format delta` on a Spark with Delta's package",
            source=location.url,
        )
    return Code.SOURCE_DAMAGED(
        f"the log of {location.url} cannot be read: {text}; repair it with Delta's own tools, or give a --version that "
        "it still has",
        name=location.url,
    )


def _unread_features(table: Any) -> set[str]:
    """Return the features of the table with which its files cannot be read one by one."""
    features = set(table.protocol().reader_features or ())
    mapping = (table.metadata().configuration or {}).get("delta.columnMapping.mode", "none") != "none"
    return {"columnMapping"} if mapping else features - _READ_FEATURES


def _files(table: Any) -> dict[str, _Vector | None]:
    """Return the deletion vector of each file, by its path; None: all of its rows are there."""
    hidden = _hidden_rows(table)
    paths = [(action["path"], unquote(action["path"])) for action in pa.table(table.get_add_actions()).to_pylist()]
    return {path: _vector_of(path, written, hidden) for written, path in paths}


def _file_parts(table: Any, schema: pa.Schema, location: SourceLocation) -> list[FilePart]:
    if unread := _unread_features(table):
        raise Code.SOURCE_UNSUPPORTED(
            f"{location.url} has the feature {', '.join(sorted(unread))}, which tasks cannot read: leave out --spark "
            "and --in-process, or use `lakebed import --format delta` with Delta's package for Spark",
            source=location.url,
        )
    hidden = _hidden_rows(table)
    parts = []
    for action in pa.table(table.get_add_actions()).to_pylist():
        path = unquote(action["path"])
        if "://" in path:
            raise Code.SOURCE_UNSUPPORTED(
                f"{location.url} refers to {path}, a file outside of its folder: leave out --spark and --in-process",
                source=location.url,
            )
        vector = _vector_of(path, action["path"], hidden)
        keep = None if vector is None else partial(_undeleted_rows, vector=vector)
        part = ParquetPart(path, action.get("partition") or {}, keep)
        parts.append(FilePart(location, part, schema, action["size_bytes"]))
    return parts


_Vector = tuple[bytes, int]
"""A bit for each row of a file, set if the row is not deleted, and the number of bits. Rows after them are not
deleted."""


def _hidden_rows(table: Any) -> dict[str, list[tuple[str, _Vector]]]:
    """Return by the name of a file the URLs of the files of that name that have a deletion vector, with the vectors."""
    found: dict[str, list[tuple[str, _Vector]]] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for place, counts in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
            bits = np.packbits(counts.values.to_numpy(zero_copy_only=False)).tobytes()
            found.setdefault(place.rpartition("/")[2], []).append((place, (bits, len(counts.values))))
    return found


def _vector_of(path: str, written: str, hidden: Mapping[str, Sequence[tuple[str, _Vector]]]) -> _Vector | None:
    """Return the deletion vector of a file, whose URL ends with its path, or with that as the log has it written."""
    ends = f"/{path}", f"/{written}"
    return next((vector for url, vector in hidden.get(path.rpartition("/")[2], ()) if url.endswith(ends)), None)


def _undeleted_rows(batch: pa.RecordBatch, position: int, vector: _Vector) -> pa.RecordBatch:
    """Return the rows that are not deleted."""
    bits, count = vector
    first, end = position // 8, (position + batch.num_rows + 7) // 8
    near = np.unpackbits(np.frombuffer(bits, np.uint8)[first:end]).astype(bool)
    known = near[position - 8 * first :][: max(0, min(batch.num_rows, count - position))]
    return batch.filter(pa.array(np.pad(known, (0, batch.num_rows - len(known)), constant_values=True)))


def _row_count(table: Any) -> int | None:
    """Return the rows of all files without those that deletion vectors hide; None if a file has no statistics."""
    counts = pa.table(table.get_add_actions()).column("num_records")
    if counts.null_count:
        return None
    vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors()).read_all().column("selection_vector")
    hidden = pc.sum(pc.invert(pc.list_flatten(vectors))).as_py() or 0
    return (pc.sum(counts).as_py() or 0) - hidden
