"""Tables of IceDB version 3: files below ``_data/``, and a log of JSON lines below ``_log/``.

The log is read as by IceDB's own readers: all of its files in the order of their names, each with lines for metadata,
the schema, log files that it replaces, and data files. The last line about a data file determines whether it is live. A
file whose size differs from the log is refused.

A merge writes the values in the names of folders into its file, an insert does not. So such a column is read from the
names of folders if a file or the target table has it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.parquet as pq

from lakebed.errors import Code
from lakebed.model.documents import UNREADABLE, load
from lakebed.upkeep.migration.foreign_table import ForeignTable, ParquetPart, SourceFolder, SourceLocation, of_files
from lakebed.upkeep.migration.hive import values_of


@dataclass(frozen=True, slots=True)
class _Marker:
    """The log's record of a file: its path in the folder, its size, and whether it is live."""

    path: str
    size_bytes: int
    alive: bool


def open_icedb(location: SourceLocation) -> ForeignTable:
    """Open the live files after the last entry of the log. Raises DamagedError for a log that cannot be read."""
    folder = SourceFolder(location)
    listed = folder.list("_log")
    logs = [path for path in listed if path.startswith("_log/") and path.endswith(".jsonl")]
    markers: dict[str, _Marker] = {}
    for path in logs:
        markers |= {marker.path: marker for marker in _markers_in(folder, path)}
    alive = [marker for marker in markers.values() if marker.alive]
    if not alive:
        raise Code.SOURCE_NOT_FOUND(f"the log of {folder.url} names no file that counts", name=folder.url)
    sizes = {path: file.size_bytes for path, file in folder.list("_data").items()}
    for marker in alive:
        if sizes.get(marker.path) != marker.size_bytes:
            raise Code.SOURCE_DAMAGED(
                f"{folder.url}/{marker.path} has {sizes.get(marker.path, 'no')} bytes, and the log says "
                f"{marker.size_bytes}",
                name=f"{folder.url}/{marker.path}",
            )
    stored = {name for marker in alive for name in _columns_of(folder, marker.path)}
    taken = {*stored, *location.wanted}
    parts = [
        ParquetPart(path, {name: value for name, value in values_of(path).items() if name in taken})
        for path in (marker.path for marker in alive)
    ]
    return of_files(folder, parts, location, logs[-1].removeprefix("_log/"))


def _columns_of(folder: SourceFolder, path: str) -> list[str]:
    with folder.open(path) as source:
        return list(pq.read_schema(source).names)


def _markers_in(folder: SourceFolder, path: str) -> list[_Marker]:
    lines = folder.read(path).decode("utf-8", "replace").splitlines()
    try:
        metadata = load(lines[0].encode())
        if str(metadata["v"]) != "1":
            raise ValueError(f"version {metadata['v']}, where 1 is supported")
        documents = [load(line.encode()) for line in lines[metadata["f"] :]]
        return [
            _Marker(f"_data/{one['p'].partition('_data/')[2]}", one["b"], one.get("tmb") is None) for one in documents
        ]
    except UNREADABLE as error:
        url = f"{folder.url}/{path}"
        raise Code.SOURCE_DAMAGED(f"{url} is not a file of IceDB's log: {error}", name=url) from error
