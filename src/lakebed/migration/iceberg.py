"""Tables of Apache Iceberg, through the package ``pyiceberg``: with deletes and renamed columns as the table has them.

A table is named by its metadata file, by its folder if that has a ``version-hint.text``, or by its name in a catalog of
PyIceberg's configuration. Equality deletes are refused, because PyIceberg does not apply them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakebed.errors import Code
from lakebed.migration.foreign_table import ForeignTable, SourceFolder, SourceLocation, plain_schema, unsupported
from lakebed.model.foreign_errors import optional_imports
from lakebed.storage.external import options_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

_PROPERTIES = {
    "access_key_id": "s3.access-key-id",
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}
"""PyIceberg's names of storage options."""


def open_iceberg(location: SourceLocation) -> ForeignTable:
    """The table at its current snapshot, or at ``location.version``. Raises UsageError for one that cannot be read."""
    with optional_imports():
        import pyiceberg.table  # noqa: F401 - an error names the extra if it is missing

    with unsupported(location):
        table = _opened(location)
        scan = table.scan(snapshot_id=location.number())
        schema = plain_schema(scan.projection().as_arrow())
        # Reads the files that have deletes, and raises for equality deletes.
        rows = scan.count()
    snapshot = scan.snapshot()

    def batches() -> Iterator[pa.RecordBatch]:
        yield from scan.to_arrow_batch_reader()

    return ForeignTable(location.url, None if snapshot is None else str(snapshot.snapshot_id), schema, rows, batches)


def _opened(location: SourceLocation) -> Table:
    if location.catalog is not None:
        from pyiceberg.catalog import load_catalog

        return load_catalog(location.catalog).load_table(location.url)
    from pyiceberg.table import StaticTable

    if not location.url.endswith(".metadata.json"):
        _check_hint(location)
    return StaticTable.from_metadata(location.url.rstrip("/"), _properties(location))


def _check_hint(location: SourceLocation) -> None:
    """Raise UsageError for a folder that does not say which metadata file is the current one."""
    listed = SourceFolder(location).list("metadata")
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
