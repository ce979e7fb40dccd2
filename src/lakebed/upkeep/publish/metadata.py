"""The snapshots of a published table: manifests, manifest lists and metadata, by PyIceberg's writers and models.

A publication writes at most one manifest of data files and one of deletes. It has the new entries, and takes the place
of manifests that name files which are no longer there, and of those that have no more entries than it. So a table of n
files has about log2(n) manifests, and an entry is rewritten about as often; manifests of :data:`ENTRIES_MAX` entries
are left alone while their files stay. Dropped files are in it as deleted, for readers of changes.

Core types: :class:`Manifests` of a snapshot, :class:`FileChanges` of a version. Source: the specification of
Apache Iceberg; decision 0074.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

import xxhash
from pyiceberg.manifest import (
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary

from lakebed import clock
from lakebed.model.files import PublishedPart, iceberg_folder, part_name
from lakebed.upkeep.publish import record
from lakebed.upkeep.publish.deletes import PATH_ID
from lakebed.upkeep.publish.iceberg_types import SORT_ORDER_ID, iceberg_schema, sort_order
from lakebed.upkeep.publish.record import location_of
from lakebed.upkeep.publish.storage_io import StorageIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyiceberg.manifest import DataFile, ManifestFile

    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Storage
    from lakebed.upkeep.publish.record import MetadataFile

ENTRIES_MAX = 4_096
"""Entries of a manifest that is not merged with others: about 2 MB."""

ENTRIES_KEPT = 512
"""Entries of a manifest that are kept in memory, because the next publication probably rewrites it."""

CODEC: Literal["deflate"] = "deflate"
"""Of manifests."""

Entries = tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Manifests:
    """The manifests of one kind of a snapshot, oldest first, and in which of them each path is named.

    A delete has the path of its data file. ``entries`` are those of small manifests, by their paths.
    """

    files: tuple[ManifestFile, ...] = ()
    places: dict[str, str] = field(default_factory=dict)
    entries: dict[str, Entries] = field(default_factory=dict)

    def files_of(self, io: StorageIO) -> Iterator[tuple[str, DataFile]]:
        """Return what the manifests name, each with its path, or that of its data file. Reads those of many entries."""
        for manifest in self.files:
            for entry in self.entries.get(manifest.manifest_path) or manifest.fetch_manifest_entry(io):
                yield path_of(manifest.content, entry.data_file), entry.data_file


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What a version changes: new data files and paths of dropped ones, and the deletes of data files.

    ``deletes`` are by the path of their data file, and take the place of earlier ones; None: there are none any more.
    """

    added: Sequence[DataFile]
    dropped: Sequence[str]
    deletes: Mapping[str, DataFile | None]

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.deletes)


class _DeleteManifestWriter(ManifestWriterV2):
    """PyIceberg writes manifests of data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


_WRITERS = {ManifestContent.DATA: ManifestWriterV2, ManifestContent.DELETES: _DeleteManifestWriter}
_KINDS = {ManifestContent.DATA: "data", ManifestContent.DELETES: "deletes"}


def path_of(content: ManifestContent, file: DataFile) -> str:
    """Return the path by which an entry is found: of a delete that of its data file."""
    return file.file_path if content is ManifestContent.DATA else file.lower_bounds[PATH_ID].decode()


class PartWriter:
    """Writes the parts of one publication of one version of a table."""

    def __init__(self, storage: Storage, table_id: str, number: int, state: TableState) -> None:
        self.storage = storage
        self.table_id = table_id
        self.number = number
        self.state = state
        self.io = StorageIO(storage)
        self.schema = iceberg_schema(state.created)

    @property
    def snapshot_id(self) -> int:
        """The id of the snapshot: of the table, the version and the publication."""
        seed = f"{self.table_id}/{self.state.version}/{self.number}".encode()
        return (xxhash.xxh3_64_intdigest(seed) >> 1) or 1

    def location(self, kind: str, ending: str) -> str:
        """Return the location of a new object."""
        part = PublishedPart(self.number, self.state.version, kind)
        return location_of(self.storage, part_name(self.table_id, part, clock.random_token(), ending))

    def write(self, kind: str, ending: str, data: bytes) -> str:
        """Put an object, and return its location."""
        output = self.io.new_output(self.location(kind, ending))
        output.put(data)
        return output.location

    def read_entries(self, file: ManifestFile, known: Mapping[str, Entries]) -> Entries:
        """Return the entries of a manifest that are not deleted."""
        found = known.get(file.manifest_path)
        return tuple(file.fetch_manifest_entry(self.io)) if found is None else found

    def write_manifest(
        self, content: ManifestContent, added: Entries, existing: Entries, deleted: Entries
    ) -> ManifestFile:
        """Write a manifest with these entries, and return what the manifest list says of it."""
        output = self.io.new_output(self.location(_KINDS[content], "avro"))
        writer = _WRITERS[content](UNPARTITIONED_PARTITION_SPEC, self.schema, output, self.snapshot_id, CODEC)
        with writer:
            for entry in existing:
                writer.existing(entry)
            for entry in added:
                writer.add(entry)
            for entry in deleted:
                writer.delete(entry)
        file = writer.to_manifest_file()
        file.sequence_number = self.number
        if file.min_sequence_number < 0:
            file.min_sequence_number = self.number
        return file

    def write_list(self, parent: int | None, files: Sequence[ManifestFile]) -> str:
        """Write the list of the manifests of the snapshot, and return its location."""
        location = self.location(record.LIST, "avro")
        output = self.io.new_output(location)
        with write_manifest_list(2, output, self.snapshot_id, parent, self.number, CODEC) as writer:
            if files:
                writer.add_manifests(list(files))
        return location


def read_manifests(io: StorageIO, snapshot: Snapshot | None) -> dict[ManifestContent, Manifests]:
    """Return the manifests of a snapshot by what they name. Reads all of them."""
    found = {content: Manifests() for content in _WRITERS}
    for file in () if snapshot is None else read_manifest_list(io.new_input(snapshot.manifest_list)):
        entries = tuple(file.fetch_manifest_entry(io))
        before = found[file.content]
        before.places.update((path_of(file.content, entry.data_file), file.manifest_path) for entry in entries)
        if len(entries) <= ENTRIES_KEPT:
            before.entries[file.manifest_path] = entries
        found[file.content] = replace(before, files=(*before.files, file))
    return found


def changed_manifests(
    writer: PartWriter, content: ManifestContent, before: Manifests, added: Sequence[DataFile], dropped: Sequence[str]
) -> Manifests:
    """Return the manifests after a change; writes at most one. ``dropped`` are paths that are named so far."""
    if not added and not dropped:
        return before
    touched, gone = {before.places[path] for path in dropped}, frozenset(dropped)
    kept, merged, count = [], [], len(added)
    for file in reversed(before.files):
        size = (file.added_files_count or 0) + (file.existing_files_count or 0)
        if file.manifest_path in touched or (size <= count and size < ENTRIES_MAX):
            merged.append(file)
            count += size
        else:
            kept.append(file)
    entries = [entry for file in reversed(merged) for entry in writer.read_entries(file, before.entries)]
    existing = tuple(entry for entry in entries if path_of(content, entry.data_file) not in gone)
    deleted = tuple(entry for entry in entries if path_of(content, entry.data_file) in gone)
    new = tuple(_added_entry(writer, file) for file in added)
    file = writer.write_manifest(content, new, existing, deleted)
    live = (*existing, *new)
    places = {path: place for path, place in before.places.items() if path not in gone}
    places.update((path_of(content, entry.data_file), file.manifest_path) for entry in live)
    paths = {one.manifest_path for one in kept}
    known = {path: entries for path, entries in before.entries.items() if path in paths}
    if len(live) <= ENTRIES_KEPT:
        known[file.manifest_path] = live
    return Manifests((*reversed(kept), file), places, known)


def _added_entry(writer: PartWriter, file: DataFile) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=writer.snapshot_id,
        sequence_number=writer.number,
        file_sequence_number=writer.number,
        data_file=file,
    )


def new_metadata(storage: Storage, table_id: str, state: TableState) -> TableMetadataV2:
    """Return the metadata of a table that was not published yet, without a snapshot."""
    fields: dict[str, Any] = {
        "location": location_of(storage, iceberg_folder(table_id)),
        "table-uuid": _uuid(table_id),
        "last-updated-ms": _now_ms(),
        "last-column-id": 0,
        "schemas": [iceberg_schema(state.created)],
        "current-schema-id": state.created.version,
        "partition-specs": [UNPARTITIONED_PARTITION_SPEC],
        "default-spec-id": UNPARTITIONED_PARTITION_SPEC.spec_id,
        "last-partition-id": PARTITION_FIELD_ID_START - 1,
        "sort-orders": [sort_order(state.created)],
        "default-sort-order-id": SORT_ORDER_ID,
    }
    return TableMetadataV2(**fields)


def with_snapshot(
    writer: PartWriter,
    metadata: TableMetadataV2,
    manifests: Mapping[ManifestContent, Manifests],
    changes: FileChanges,
    committed_ms: int,
) -> tuple[TableMetadataV2, dict[ManifestContent, Manifests]]:
    """Return the metadata and manifests after a version with these changes, which is the current snapshot then."""
    parent = metadata.current_snapshot()
    changed = _changed(writer, manifests, changes)
    timestamp_ms = max(committed_ms, 0 if parent is None else parent.timestamp_ms)
    snapshot = _snapshot(writer, parent, changed, changes, timestamp_ms)
    logged = {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": timestamp_ms}
    update = {
        "snapshots": [*metadata.snapshots, snapshot],
        "snapshot_log": [*metadata.snapshot_log, SnapshotLogEntry(**logged)],
        "current_snapshot_id": snapshot.snapshot_id,
        "last_sequence_number": writer.number,
    }
    return metadata.model_copy(update=update), changed


def with_tagged_snapshot(
    writer: PartWriter, metadata: TableMetadataV2, added: Sequence[DataFile], deletes: Mapping[str, DataFile | None],
    committed_ms: int,
) -> TableMetadataV2:  # fmt: skip
    """Return the metadata with a snapshot of an older version beside the current one, for a tag."""
    changes = FileChanges(added, (), deletes)
    manifests = _changed(writer, {content: Manifests() for content in _WRITERS}, changes)
    snapshot = _snapshot(writer, None, manifests, changes, committed_ms)
    update = {"snapshots": [snapshot, *metadata.snapshots], "last_sequence_number": writer.number}
    return metadata.model_copy(update=update)


def _changed(
    writer: PartWriter, manifests: Mapping[ManifestContent, Manifests], changes: FileChanges
) -> dict[ManifestContent, Manifests]:
    data, deletes = manifests[ManifestContent.DATA], manifests[ManifestContent.DELETES]
    replaced = dict.fromkeys(path for path in chain(changes.dropped, changes.deletes) if path in deletes.places)
    new = [file for file in changes.deletes.values() if file is not None]
    return {
        ManifestContent.DATA: changed_manifests(writer, ManifestContent.DATA, data, changes.added, changes.dropped),
        ManifestContent.DELETES: changed_manifests(writer, ManifestContent.DELETES, deletes, new, tuple(replaced)),
    }


def _snapshot(
    writer: PartWriter,
    parent: Snapshot | None,
    manifests: Mapping[ManifestContent, Manifests],
    changes: FileChanges,
    timestamp_ms: int,
) -> Snapshot:
    files = [*manifests[ManifestContent.DATA].files, *manifests[ManifestContent.DELETES].files]
    parent_id = None if parent is None else parent.snapshot_id
    fields: dict[str, Any] = {
        "snapshot-id": writer.snapshot_id,
        "parent-snapshot-id": parent_id,
        "sequence-number": writer.number,
        "timestamp-ms": timestamp_ms,
        "manifest-list": writer.write_list(parent_id, files),
        "summary": Summary(_operation(changes), **_snapshot_counts(writer, manifests, changes)),
        "schema-id": writer.state.created.version,
    }
    return Snapshot(**fields)


def _operation(changes: FileChanges) -> Operation:
    if not changes.dropped and not changes.deletes:
        return Operation.APPEND
    return Operation.OVERWRITE if changes.added else Operation.DELETE


def _snapshot_counts(
    writer: PartWriter, manifests: Mapping[ManifestContent, Manifests], changes: FileChanges
) -> dict[str, str]:
    """Return the counts that readers of Iceberg know, and the version."""
    data, deletes = manifests[ManifestContent.DATA], manifests[ManifestContent.DELETES]
    new = [file for file in changes.deletes.values() if file is not None]
    counts = {
        "added-data-files": len(changes.added),
        "added-records": sum(file.record_count for file in changes.added),
        "added-files-size": sum(file.file_size_in_bytes for file in changes.added),
        "deleted-data-files": len(changes.dropped),
        "added-delete-files": len(new),
        "added-position-deletes": sum(file.record_count for file in new),
        "total-data-files": len(data.places),
        "total-delete-files": len(deletes.places),
        "total-records": _row_count(data),
        "total-position-deletes": _row_count(deletes),
        "total-equality-deletes": 0,
    }
    return {record.VERSION: str(writer.state.version), **{name: str(count) for name, count in counts.items()}}


def _row_count(manifests: Manifests) -> int:
    return sum((file.added_rows_count or 0) + (file.existing_rows_count or 0) for file in manifests.files)


def with_tags(metadata: TableMetadataV2, tags: Mapping[str, int]) -> TableMetadataV2:
    """Return the metadata with the tags as references, besides the main branch; each tag's version has a snapshot."""
    by_version = snapshots_by_version(metadata)
    refs = {
        _ref_name(name): _reference(by_version[version].snapshot_id, SnapshotRefType.TAG)
        for name, version in sorted(tags.items())
        if version in by_version
    }
    if metadata.current_snapshot_id is not None:
        refs[MAIN_BRANCH] = _reference(metadata.current_snapshot_id, SnapshotRefType.BRANCH)
    return metadata.model_copy(update={"refs": refs})


def _reference(snapshot_id: int, kind: SnapshotRefType) -> SnapshotRef:
    fields: dict[str, Any] = {"snapshot-id": snapshot_id, "type": kind}
    return SnapshotRef(**fields)


def _ref_name(tag: str) -> str:
    return f"tag.{tag}" if tag == MAIN_BRANCH else tag


def snapshots_by_version(metadata: TableMetadataV2) -> dict[int, Snapshot]:
    """Return the snapshots by the version of the table."""
    return {int(_version(one)): one for one in metadata.snapshots}


def _version(snapshot: Snapshot) -> str:
    assert snapshot.summary is not None
    return str(snapshot.summary[record.VERSION])


def without_old(metadata: TableMetadataV2, before_ms: int) -> TableMetadataV2:
    """Return the metadata without the snapshots that were replaced before a time, or that are too many.

    Those with references stay.
    """
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    log = metadata.snapshot_log
    young = {entry.snapshot_id for entry, next_ in pairwise(log) if next_.timestamp_ms > before_ms}
    young &= {entry.snapshot_id for entry in log[-record.SNAPSHOTS_MAX :]}
    kept = [one for one in metadata.snapshots if one.snapshot_id in young | named]
    if len(kept) == len(metadata.snapshots):
        return metadata
    ids = {one.snapshot_id for one in kept}
    # Entries before one that is gone go too, as Iceberg has it.
    first = next((place for place in range(len(log), 0, -1) if log[place - 1].snapshot_id not in ids), 0)
    return metadata.model_copy(update={"snapshots": kept, "snapshot_log": log[first:]})


def finished(
    metadata: TableMetadataV2, previous: MetadataFile | None, state: TableState, properties: Mapping[str, str]
) -> tuple[TableMetadataV2, bytes]:
    """Return the metadata with schema and properties of a version, and the bytes of their file."""
    older = [one for one in metadata.schemas if one.schema_id != state.created.version]
    schemas = [*older, iceberg_schema(state.created)]
    update: dict[str, Any] = {
        "schemas": schemas,
        "current_schema_id": state.created.version,
        "last_column_id": max([metadata.last_column_id, *(one.highest_field_id for one in schemas)]),
        "last_updated_ms": max([_now_ms(), *(entry.timestamp_ms for entry in metadata.snapshot_log[-1:])]),
        "properties": {
            # Other engines leave files and snapshots alone.
            "gc.enabled": "false",
            record.TABLE: state.table,
            record.VERSION: str(state.version),
            record.PREVIOUS: "" if previous is None else previous.digest,
            **properties,
            **record.unsealed(),
        },
    }
    result = metadata.model_copy(update=update)
    return result, record.sealed(result.model_dump_json().encode())


def parsed(file: MetadataFile) -> TableMetadataV2:
    """Return the metadata of a publication."""
    found = TableMetadataUtil.parse_raw(file.data.decode())
    assert isinstance(found, TableMetadataV2)
    return found


def _uuid(table_id: str) -> UUID:
    """Return the UUID of the Iceberg table: the id of ours, which is one unless another program made it."""
    try:
        return UUID(table_id)
    except ValueError:
        return uuid5(NAMESPACE_URL, table_id)


def _now_ms() -> int:
    return int(clock.now().timestamp() * 1000)


def parts_of(storage: Storage, lists: Iterable[str]) -> Iterator[str]:
    """Return the names of manifest lists, and of the manifests and deletes of their snapshots."""
    io = StorageIO(storage)
    for name in lists:
        yield name
        for manifest in read_manifest_list(io.new_input(io.root + name)):
            yield io.name_of(manifest.manifest_path)
            if manifest.content is ManifestContent.DELETES:
                yield from (io.name_of(entry.data_file.file_path) for entry in manifest.fetch_manifest_entry(io))
