"""Tables of Apache Iceberg, read by the package ``pyiceberg``, which applies deletes and renamed columns.

A table is named by its metadata file, by its folder if that has a ``version-hint.text``, or by its name in a catalog of
PyIceberg's configuration. Equality deletes are refused, because PyIceberg does not apply them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.model.foreign_errors import optional_imports
from lakebed.storage.external import options_of
from lakebed.upkeep.migration.foreign_table import (
    ForeignTable,
    SourceFolder,
    SourceLocation,
    plain_schema,
    unreadable,
    unsupported,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

_PROPERTIES = {
    "access_key_id": "s3.access-key-id",
    "endpoint": "s3.endpoint",
    "endpoint_url": "s3.endpoint",
    "region": "s3.region",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}
"""PyIceberg's names of storage options."""


def open_iceberg(location: SourceLocation) -> ForeignTable:
    """Open the table at its current snapshot, or at ``location.version``. Raises UsageError if it cannot be read."""
    with optional_imports():
        import pyiceberg.table  # noqa: F401 - an error names the extra if it is missing

    with unsupported(location):
        table = _open_table(location)
        scan = table.scan(snapshot_id=location.number())
        schema = plain_schema(scan.projection().as_arrow())
        # Reads the files that have deletes, and raises for equality deletes.
        rows = scan.count()
    snapshot = scan.snapshot()
    version = None if snapshot is None else str(snapshot.snapshot_id)

    def batches() -> Iterator[pa.RecordBatch]:
        with unreadable(location, version):
            yield from scan.to_arrow_batch_reader()

    def parts() -> list[IcebergPart]:
        with unsupported(location):
            return [IcebergPart(table.metadata, table.io, scan.projection(), task) for task in scan.plan_files()]

    def since(before: str) -> ForeignTable | None:
        with unsupported(location):
            old = table.scan(snapshot_id=int(before)) if before.isdecimal() else None
            if old is None or old.snapshot() is None:
                return None
            files_before, rows_before = _files(old), old.count()
            if not files_before <= _files(scan):
                return None
        added = [part for part in parts() if _file(part.task) not in files_before]
        return opened.with_parts(added, rows - rows_before)

    origin = str(table.metadata.table_uuid)
    opened = ForeignTable(location.url, version, schema, rows, batches, parts, origin, since=since)
    return opened


def _files(scan: Any) -> set[tuple[str, frozenset[str]]]:
    return {_file(task) for task in scan.plan_files()}


def _file(task: Any) -> tuple[str, frozenset[str]]:
    """Return a data file and the files of deletes that apply to it."""
    return task.file.file_path, frozenset(one.file_path for one in task.delete_files)


@dataclass(frozen=True, slots=True)
class IcebergPart:
    """The rows of a data file, without those that its position deletes hide; read by PyIceberg."""

    metadata: Any
    io: Any
    projection: Any
    task: Any

    @property
    def name(self) -> str:
        """The URL of the file."""
        return str(self.task.file.file_path)

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return int(self.task.file.file_size_in_bytes)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows that are not deleted."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self.metadata, self.io, self.projection, AlwaysTrue())
        yield from scan.to_record_batches([self.task])


def _open_table(location: SourceLocation) -> Table:
    if location.catalog is not None:
        from pyiceberg.catalog import load_catalog

        return load_catalog(location.catalog).load_table(location.url)
    from pyiceberg.table import StaticTable

    if not location.url.endswith(".metadata.json"):
        _check_hint(location)
    return StaticTable.from_metadata(location.url.rstrip("/"), _properties(location))


def _check_hint(location: SourceLocation) -> None:
    """Raise UsageError for a folder that does not name its current metadata file."""
    listed = SourceFolder(location).list_if_any("metadata")
    if not listed:
        raise Code.SOURCE_NOT_FOUND(f"no table of Iceberg at {location.url}: it has no metadata/", name=location.url)
    if "metadata/version-hint.text" not in listed:
        files = [path for path in listed if path.endswith(".metadata.json")]
        last = f"; the last by name is {location.url.rstrip('/')}/{files[-1]}" if files else ""
        raise Code.ARGUMENT_INVALID(
            f"{location.url} has no metadata/version-hint.text to name the current metadata file: give that file, "
            f"which the catalog knows, or --catalog and the table's name{last}"
        )


def _properties(location: SourceLocation) -> dict[str, Any]:
    options = {name.removeprefix("aws_"): value for name, value in options_of(location.url, location.home).items()}
    return {ours: options[name] for name, ours in _PROPERTIES.items() if name in options}
