"""Manifests and manifest lists of a published table, by PyIceberg's schemas and its encoder of Avro.

A publication writes at most one manifest of data files and one of deletes. It has the new entries, and takes the place
of manifests that name files which are no longer there, and of those that have no more entries than it. So a table of n
files has about log2(n) manifests, and an entry is rewritten about as often; manifests of :data:`ENTRIES_MAX` entries
are left alone while their files stay. Dropped files are in it as deleted, for readers of changes.

PyIceberg's writers of manifests know neither deletes nor format 3, and its readers leave out what format 3 adds. In
memory all records have the fields of format 3; files have those of their own format. In format 3 each row has an id: a
data file has that of its first row in its entry, and a manifest the least one that its added files could have.

Core types: :class:`PartWriter`, :class:`Manifests` of a snapshot. Source: the specification of Apache Iceberg;
decision 0074.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import xxhash
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from lakebed import clock
from lakebed.model.files import PublishedPart, part_name
from lakebed.upkeep.publish.iceberg_types import iceberg_schema
from lakebed.upkeep.publish.record import location_of
from lakebed.upkeep.publish.storage_io import StorageIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.schema import Schema

    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Storage

ENTRIES_MAX = 4_096
"""Entries of a manifest that is not merged with others: about 2 MB."""

ENTRIES_KEPT = 512
"""Entries of a manifest that are kept in memory, because the next publication probably rewrites it."""

CODEC = "deflate"
"""Of manifests."""

NEWEST: Literal[3] = 3
"""The format whose fields records have."""

Entries = tuple[ManifestEntry, ...]

_KINDS = {ManifestContent.DATA: "data", ManifestContent.DELETES: "deletes"}

_EXISTING, _ADDED, _DELETED = ManifestEntryStatus
_FILE_FIELDS = [one.name for one in DATA_FILE_TYPE[NEWEST].fields]
_LIST_FIELDS = [one.name for one in MANIFEST_LIST_FILE_SCHEMAS[NEWEST].fields]
_FIRST_ROW_ID, _REFERENCED = _FILE_FIELDS.index("first_row_id"), _FILE_FIELDS.index("referenced_data_file")
_LEAST_ROW_ID = _LIST_FIELDS.index("first_row_id")


@dataclass(frozen=True, slots=True)
class Manifests:
    """The manifests of one kind of a snapshot, oldest first, and in which of them each key is named.

    ``entries`` are those of small manifests, by their paths. In format 3 no file that is added next has rows with lower
    ids than ``first_row_id``.
    """

    files: tuple[ManifestFile, ...] = ()
    places: dict[str, str] = field(default_factory=dict)
    entries: dict[str, Entries] = field(default_factory=dict)
    first_row_id: int | None = None

    def entries_of(self, io: StorageIO, manifest: ManifestFile) -> Entries:
        """Return the entries of one of the manifests; it is read if it has many."""
        found = self.entries.get(manifest.manifest_path)
        return read_entries(io, manifest) if found is None else found

    def rows(self) -> int:
        """Return the number of rows in the files that the manifests name."""
        return sum(map(_live_rows, self.files))

    def with_row_ids(self, added: Sequence[DataFile], first: int) -> tuple[Manifests, int]:
        """Give ids from ``first`` on to rows that have none: those of ``added`` files, and of manifests of format 2.

        Returns the manifests, and the id after the last one. The added files are changed.
        """
        files, entries = [], dict(self.entries)
        for manifest in self.files:
            if manifest[_LEAST_ROW_ID] is None:
                files.append(ManifestFile(*(manifest[place] for place in range(_LEAST_ROW_ID)), first))
                entries.pop(manifest.manifest_path, None)
                first += _live_rows(manifest)
            else:
                files.append(manifest)
        found = replace(self, files=tuple(files), entries=entries, first_row_id=first)
        for file in added:
            file[_FIRST_ROW_ID] = first
            first += file.record_count
        return found, first


def _live_rows(manifest: ManifestFile) -> int:
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)


def key_of(file: DataFile) -> str:
    """Return what an entry is found by: the path of its file, or of the data file that a deletion vector is about."""
    return file[_REFERENCED] or file.file_path


class PartWriter:
    """Writes the parts of one publication of one version of a table."""

    def __init__(
        self, storage: Storage, state: TableState, number: int, *, rows: str, format_version: Literal[2, 3]
    ) -> None:
        self.storage = storage
        self.state = state
        self.number = number
        self.rows = rows
        self.format_version = format_version
        self.io = StorageIO(storage)
        self.schema = iceberg_schema(state.created)

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot: of the table, the version and the publication."""
        seed = f"{self.state.table}/{self.state.version}/{self.number}".encode()
        return (xxhash.xxh3_64_intdigest(seed) >> 1) or 1

    def location(self, kind: str, ending: str) -> str:
        """Return the location of a new object."""
        part = PublishedPart(self.number, self.state.version, kind)
        return location_of(self.storage, part_name(self.state.table, part, clock.random_token(), ending))

    def write(self, kind: str, ending: str, data: bytes) -> str:
        """Put an object, and return its location."""
        output = self.io.new_output(self.location(kind, ending))
        output.put(data)
        return output.location

    def write_manifest(self, content: ManifestContent, entries: Entries, first_row_id: int | None) -> ManifestFile:
        """Write a manifest with these entries, and return what the manifest list says of it."""
        metadata = {
            "schema": self.schema.model_dump_json(),
            "partition-spec": "[]",
            "partition-spec-id": str(UNPARTITIONED_PARTITION_SPEC.spec_id),
            "content": content.name.lower(),
        }
        location, size_bytes = self._write_avro(
            _KINDS[content], "manifest_entry", MANIFEST_ENTRY_SCHEMAS, entries, metadata
        )
        live = [one.sequence_number or 0 for one in entries if one.status != _DELETED]
        counts: dict[str, int] = {}
        for status in ManifestEntryStatus:
            rows = [one.data_file.record_count for one in entries if one.status == status]
            name = status.name.lower()
            counts |= {f"{name}_files_count": len(rows), f"{name}_rows_count": sum(rows)}
        return ManifestFile.from_args(
            NEWEST,
            manifest_path=location,
            manifest_length=size_bytes,
            partition_spec_id=UNPARTITIONED_PARTITION_SPEC.spec_id,
            content=content,
            sequence_number=self.number,
            min_sequence_number=min(live, default=self.number),
            added_snapshot_id=self.snapshot_id,
            partitions=[],
            first_row_id=first_row_id,
            **counts,
        )

    def write_list(self, kind: str, parent: int | None, files: Sequence[ManifestFile]) -> str:
        """Write the list of the manifests of the snapshot, and return its location."""
        metadata = {
            "snapshot-id": str(self.snapshot_id),
            "parent-snapshot-id": "null" if parent is None else str(parent),
            "sequence-number": str(self.number),
        }
        return self._write_avro(kind, "manifest_file", MANIFEST_LIST_FILE_SCHEMAS, files, metadata)[0]

    def _write_avro(
        self,
        kind: str,
        name: str,
        schemas: Mapping[int, Schema],
        rows: Sequence[ManifestEntry] | Sequence[ManifestFile],
        metadata: Mapping[str, str],
    ) -> tuple[str, int]:
        """Write records as one block, and return the location of the object and its size."""
        output = self.io.new_output(self.location(kind, "avro"))
        common = {"format-version": str(self.format_version), AVRO_CODEC_KEY: CODEC}
        schema, fields = schemas[self.format_version], schemas[NEWEST]
        with AvroOutputFile[ManifestEntry | ManifestFile](output, schema, name, fields, {**metadata, **common}) as file:
            if rows:
                file.write_block(list(rows))
        return output.location, len(output)


def read_entries(io: StorageIO, manifest: ManifestFile) -> Entries:
    """Return the entries of a manifest that are not deleted, with the ids of their first rows."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[NEWEST],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as file:
        entries = tuple(entry for entry in file if entry.status != _DELETED)
    row_id = manifest[_LEAST_ROW_ID]
    for entry in entries if row_id is not None else ():
        # Those that were written in format 2 have it from their manifest.
        if entry.data_file[_FIRST_ROW_ID] is None:
            entry.data_file[_FIRST_ROW_ID] = row_id
            row_id += entry.data_file.record_count
    return entries


def read_list(io: StorageIO, location: str) -> list[ManifestFile]:
    """Return the manifests of a snapshot."""
    with AvroFile[ManifestFile](
        io.new_input(location),
        MANIFEST_LIST_FILE_SCHEMAS[NEWEST],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as file:
        return list(file)


def read_manifests(io: StorageIO, location: str | None) -> dict[ManifestContent, Manifests]:
    """Return the manifests of a snapshot by what they name, from its list; none without one. Reads all of them."""
    found = {content: Manifests() for content in ManifestContent}
    for file in () if location is None else read_list(io, location):
        entries = read_entries(io, file)
        before = found[file.content]
        before.places.update((key_of(entry.data_file), file.manifest_path) for entry in entries)
        if len(entries) <= ENTRIES_KEPT:
            before.entries[file.manifest_path] = entries
        found[file.content] = replace(before, files=(*before.files, file))
    return found


def changed_manifests(
    writer: PartWriter,
    content: ManifestContent,
    before: Manifests,
    added: Sequence[DataFile],
    dropped: Sequence[str],
) -> Manifests:
    """Return the manifests after a change; writes at most one. ``dropped`` are keys that are named so far."""
    if not added and not dropped:
        return before
    touched, gone = {before.places[key] for key in dropped}, frozenset(dropped)
    kept, merged, count = [], [], len(added)
    for file in reversed(before.files):
        size = (file.added_files_count or 0) + (file.existing_files_count or 0)
        if file.manifest_path in touched or (size <= count and size < ENTRIES_MAX):
            merged.append(file)
            count += size
        else:
            kept.append(file)
    entries = [entry for file in reversed(merged) for entry in before.entries_of(writer.io, file)]
    live = (
        *(_marked(entry, _EXISTING, entry.snapshot_id) for entry in entries if key_of(entry.data_file) not in gone),
        *(_added(writer, file) for file in added),
    )
    deleted = (_marked(entry, _DELETED, writer.snapshot_id) for entry in entries if key_of(entry.data_file) in gone)
    file = writer.write_manifest(content, (*live, *deleted), before.first_row_id)
    places = {key: place for key, place in before.places.items() if key not in gone}
    places.update((key_of(entry.data_file), file.manifest_path) for entry in live)
    paths = {one.manifest_path for one in kept}
    known = {path: entries for path, entries in before.entries.items() if path in paths}
    if len(live) <= ENTRIES_KEPT:
        known[file.manifest_path] = live
    return Manifests((*reversed(kept), file), places, known)


def _added(writer: PartWriter, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=_ADDED,
        snapshot_id=writer.snapshot_id,
        sequence_number=writer.number,
        file_sequence_number=writer.number,
        data_file=file,
    )


def _marked(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    """Return an entry of an earlier publication with another status."""
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )
