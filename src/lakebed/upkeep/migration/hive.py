"""Folders of Parquet files with columns in the names of folders: ``day=2024-01-31/country=de/part-0.parquet``.

The layout of Hive, which Spark, pandas and DuckDB write as well. Rules. A value in the name of a folder replaces a
column of the file. ``__HIVE_DEFAULT_PARTITION__`` is null. As for Hive, every file counts that is not hidden
(:mod:`lakebed.write.sources`), whatever its name: Hive's own files are called ``000000_0``.

Errors: DamagedError for a file that is not Parquet, which is never left out.
"""

from __future__ import annotations

from urllib.parse import unquote

import xxhash

from lakebed.upkeep.migration.foreign_table import ForeignTable, ParquetPart, SourceFolder, SourceLocation, of_files

_NULL = "__HIVE_DEFAULT_PARTITION__"


def open_hive(location: SourceLocation) -> ForeignTable:
    """Open all files of the folder, which has no versions. Raises NotFoundError if there is none."""
    folder = SourceFolder(location)
    files = folder.data_files()
    listed = [f"{path} {file.size_bytes} {file.etag or file.modified_ns}" for path, file in files.items()]
    content = xxhash.xxh3_128_hexdigest("\n".join(listed).encode())
    return of_files(folder, [ParquetPart(path, values_of(path)) for path in files], location, content=content)


def values_of(path: str) -> dict[str, str | None]:
    """Return the columns in the names of folders, and their values."""
    pairs = (segment.split("=", 1) for segment in path.split("/")[:-1] if "=" in segment)
    return {unquote(name): None if value == _NULL else unquote(value) for name, value in pairs}
