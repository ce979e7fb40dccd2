"""The metadata of a published table: its snapshots, schemas, references and properties, by PyIceberg's models.

A publication of a table is of format 2 or 3, as its setting ``publish`` says. From 2 to 3 the table is upgraded: its
snapshots stay, and its rows get ids. Back to 2 it begins without the snapshots of before.

Core type: :class:`FileChanges` of a version. Source: the specification of Apache Iceberg; decision 0074.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from pyiceberg.manifest import ManifestContent, read_manifest_list
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import TableMetadataUtil, TableMetadataV2, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.typedef import IcebergBaseModel

from lakebed import clock
from lakebed.model.documents import load
from lakebed.model.files import iceberg_folder
from lakebed.upkeep.publish import record
from lakebed.upkeep.publish.iceberg_types import SORT_ORDER_ID, iceberg_schema, sort_order
from lakebed.upkeep.publish.manifests import Manifests, changed_manifests
from lakebed.upkeep.publish.record import location_of
from lakebed.upkeep.publish.storage_io import StorageIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyiceberg.manifest import DataFile

    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Storage
    from lakebed.upkeep.publish.manifests import PartWriter
    from lakebed.upkeep.publish.record import MetadataFile

Metadata = TableMetadataV2 | TableMetadataV3
ByContent = dict[ManifestContent, Manifests]

_NEXT_ROW_ID = "next-row-id"


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What a version changes: new data files and delete files, and keys of those that are not named any more."""

    added: Sequence[DataFile]
    dropped: Sequence[str]
    deletes_added: Sequence[DataFile]
    deletes_dropped: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.deletes_added or self.deletes_dropped)


def new_metadata(storage: Storage, table_id: str, state: TableState, format_version: Literal[2, 3]) -> Metadata:
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
    return TableMetadataV2(**fields) if format_version == 2 else TableMetadataV3(**{**fields, _NEXT_ROW_ID: 0})


def upgraded(metadata: TableMetadataV2) -> TableMetadataV3:
    """Return metadata of format 2 as those of format 3, in which no row has an id yet."""
    fields: dict[str, Any] = {**load(_dumped(metadata)), "format-version": 3, _NEXT_ROW_ID: 0}
    return TableMetadataV3(**fields)


class Base(NamedTuple):
    """What a new snapshot differs from: the metadata of the table, the snapshot before it, and its manifests."""

    metadata: Metadata
    snapshot: Snapshot | None
    manifests: ByContent


def with_snapshot(
    writer: PartWriter, base: Base, changes: FileChanges, committed_ms: int
) -> tuple[Metadata, ByContent]:
    """Return the metadata and manifests after a version with these changes, which is the current snapshot then."""
    timestamp_ms = max(committed_ms, 0 if base.snapshot is None else base.snapshot.timestamp_ms)
    snapshot, changed, ids = _snapshot(writer, base, changes, timestamp_ms, record.LIST)
    logged = {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": timestamp_ms}
    update = {
        "snapshots": [*base.metadata.snapshots, snapshot],
        "snapshot_log": [*base.metadata.snapshot_log, SnapshotLogEntry(**logged)],
        "current_snapshot_id": snapshot.snapshot_id,
        "last_sequence_number": writer.number,
        **ids,
    }
    return base.metadata.model_copy(update=update), changed


def with_tagged_snapshot(writer: PartWriter, base: Base, changes: FileChanges, committed_ms: int) -> Metadata:
    """Return the metadata with a snapshot of an older version beside the current one, for a tag."""
    snapshot, _, ids = _snapshot(writer, base, changes, committed_ms, record.TAG_LIST)
    update = {"snapshots": [snapshot, *base.metadata.snapshots], "last_sequence_number": writer.number, **ids}
    return base.metadata.model_copy(update=update)


def _snapshot(
    writer: PartWriter, base: Base, changes: FileChanges, timestamp_ms: int, kind: str
) -> tuple[Snapshot, ByContent, dict[str, Any]]:
    """Write a snapshot; return it, its manifests, and what else changes in the metadata."""
    data, deletes = base.manifests[ManifestContent.DATA], base.manifests[ManifestContent.DELETES]
    fields: dict[str, Any] = {}
    ids: dict[str, Any] = {}
    if isinstance(base.metadata, TableMetadataV3):
        begin = base.metadata.next_row_id or 0
        data, end = data.with_row_ids(changes.added, begin)
        fields, ids = {"first-row-id": begin, "added-rows": end - begin}, {"next_row_id": end}
    data = changed_manifests(writer, ManifestContent.DATA, data, changes.added, changes.dropped)
    deletes = changed_manifests(
        writer, ManifestContent.DELETES, deletes, changes.deletes_added, changes.deletes_dropped
    )
    changed = {ManifestContent.DATA: data, ManifestContent.DELETES: deletes}
    parent_id = None if base.snapshot is None else base.snapshot.snapshot_id
    fields |= {
        "snapshot-id": writer.snapshot_id,
        "parent-snapshot-id": parent_id,
        "sequence-number": writer.number,
        "timestamp-ms": timestamp_ms,
        "manifest-list": writer.write_list(kind, parent_id, (*data.files, *deletes.files)),
        "summary": Summary(_operation(changes), **_snapshot_counts(writer, changed, changes)),
        "schema-id": writer.state.created.version,
    }
    return Snapshot(**fields), changed, ids


def _operation(changes: FileChanges) -> Operation:
    if not (changes.dropped or changes.deletes_added or changes.deletes_dropped):
        return Operation.APPEND
    return Operation.OVERWRITE if changes.added else Operation.DELETE


def _snapshot_counts(writer: PartWriter, manifests: ByContent, changes: FileChanges) -> dict[str, str]:
    """Return the counts that readers of Iceberg know, and the version."""
    data, deletes = manifests[ManifestContent.DATA], manifests[ManifestContent.DELETES]
    new = changes.deletes_added
    counts = {
        "added-data-files": len(changes.added),
        "added-records": sum(file.record_count for file in changes.added),
        "added-files-size": sum(file.file_size_in_bytes for file in changes.added),
        "deleted-data-files": len(changes.dropped),
        "added-delete-files": len(new),
        "added-position-deletes": sum(file.record_count for file in new),
        "total-data-files": len(data.places),
        "total-delete-files": len(deletes.places),
        "total-records": data.rows(),
        "total-position-deletes": deletes.rows(),
        "total-equality-deletes": 0,
    }
    own = {record.VERSION: str(writer.state.version), record.ROWS: writer.rows, record.PUBLISHED: str(_now_ms())}
    return {**own, **{name: str(count) for name, count in counts.items()}}


def with_tags(metadata: Metadata, tags: Mapping[str, int]) -> Metadata:
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


def snapshots_by_version(metadata: Metadata) -> dict[int, Snapshot]:
    """Return the snapshots by the version of the table."""
    return {version_of(one): one for one in metadata.snapshots}


def version_of(snapshot: Snapshot) -> int:
    """Return the version of the table that a snapshot stands for."""
    assert snapshot.summary is not None
    return int(str(snapshot.summary[record.VERSION]))


def last_before(metadata: Metadata, version: int, rows: str) -> Snapshot | None:
    """Return the snapshot of the latest version before one, if it has the same kind of rows; None if there is none."""
    older = [one for one in metadata.snapshots if version_of(one) < version]
    last = max(older, key=version_of, default=None)
    return last if last is not None and last.summary is not None and last.summary[record.ROWS] == rows else None


def without_old(metadata: Metadata, before_ms: int) -> Metadata:
    """Return the metadata without the snapshots that were replaced before a time, or that are too many.

    Those with references stay. A snapshot is replaced by the publication of the next one: until then engines read it as
    the current one, however long ago the next version was committed.
    """
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    log = metadata.snapshot_log
    published_ms = {one.snapshot_id: _published_ms(one) for one in metadata.snapshots}
    young = {entry.snapshot_id for entry, next_ in pairwise(log) if published_ms[next_.snapshot_id] > before_ms}
    young &= {entry.snapshot_id for entry in log[-record.SNAPSHOTS_MAX :]}
    kept = [one for one in metadata.snapshots if one.snapshot_id in young | named]
    if len(kept) == len(metadata.snapshots):
        return metadata
    ids = {one.snapshot_id for one in kept}
    # Entries before one that is gone go too, as Iceberg has it.
    first = next((place for place in range(len(log), 0, -1) if log[place - 1].snapshot_id not in ids), 0)
    return metadata.model_copy(update={"snapshots": kept, "snapshot_log": log[first:]})


def _published_ms(snapshot: Snapshot) -> int:
    """Return when a snapshot was published; earlier versions of Lakebed wrote only the time of its version."""
    assert snapshot.summary is not None
    return int(str(snapshot.summary[record.PUBLISHED] or snapshot.timestamp_ms))


def finished(
    metadata: Metadata, previous: MetadataFile | None, state: TableState, properties: Mapping[str, str]
) -> tuple[Metadata, bytes]:
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
    return result, record.sealed(_dumped(result))


def _dumped(metadata: Metadata) -> bytes:
    # PyIceberg's model of format 3 refuses to be written, because its writers of manifests do not know that format.
    return IcebergBaseModel.model_dump_json(metadata).encode()


def parsed(file: MetadataFile) -> Metadata:
    """Return the metadata of a publication."""
    found = TableMetadataUtil.parse_raw(file.data.decode())
    assert isinstance(found, Metadata)
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
