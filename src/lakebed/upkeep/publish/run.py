"""Publishes a version of a table as Apache Iceberg: :func:`publish`.

1. Find the latest publication by a listing, and read it unless this process made it.
2. Find the files of the version with rows that count (:mod:`lakebed.upkeep.publish.hidden_rows`), and what differs from
   the latest snapshot.
3. Write deletes, manifests and the manifest list under fresh names.
4. Create the next metadata file if absent: that is the commit. If it exists, with other bytes than ours, begin again.
5. Look whether a later one exists: then a publisher that slept took a number that was free again, and begins again.
6. Overwrite the hint for readers without a catalog, and delete metadata files that are long replaced.

A publisher that dies leaves parts that nothing names, which garbage collection deletes. Versions between two
publications are skipped, except those with tags. The setting ``publish`` keeps the data files of published snapshots
(:mod:`lakebed.upkeep.publish.record`).

Core types: :class:`Published`, :class:`PublishReport`. Errors: UsageError if the table, or a partition of it, cannot be
published; DamagedError for metadata of another writer; ContentionError, StorageError.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, NotRetainedError, RejectedError
from lakebed.log.checkpoint import in_parallel
from lakebed.model.files import data_name, iceberg_folder, metadata_name, version_hint_name
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.reports import WorkReport
from lakebed.model.settings import Publish
from lakebed.model.wording import count_text
from lakebed.storage.retries import attempts, is_stored
from lakebed.upkeep.publish import record
from lakebed.upkeep.publish.record import MetadataFile, latest_metadata, location_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyiceberg.manifest import DataFile, ManifestContent
    from pyiceberg.table.metadata import TableMetadataV2

    from lakebed.log.checkpoint import Head
    from lakebed.model import files
    from lakebed.model.state.table_state import TableState
    from lakebed.table.table import Table
    from lakebed.upkeep.publish.hidden_rows import LiveFiles, LiveRows
    from lakebed.upkeep.publish.metadata import FileChanges, Manifests, PartWriter
    from lakebed.upkeep.publish.storage_io import StorageIO

ATTEMPTS_MAX = 8
"""Publications that others may make meanwhile."""

UNPUBLISHABLE = frozenset({Code.ROWS_NOT_MERGED, Code.FILE_NOT_PUBLISHABLE})
"""Why a version cannot be published before the table is compacted."""

MERGED, RAW = "merged", "raw"
"""Which rows are published: those of the table, or all that are stored."""

KNOWN_MAX = 64
"""Tables of which this process remembers what it has published."""


@dataclass(frozen=True, slots=True)
class Published:
    """A published version of a table. ``metadata_location`` is the URI of the metadata file, with these bytes."""

    table: str
    version: int
    number: int
    metadata_location: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class PublishReport(WorkReport):
    """What a publication did. ``snapshots`` are new; without one, the rows are those of an earlier version."""

    table: str
    version: int
    number: int
    metadata_location: str
    snapshots: int = 0
    files_added: int = 0
    files_dropped: int = 0
    deletes_written: int = 0

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        if self.idle:
            return f"no newer rows; published as {self.metadata_location}"
        files = f"{count_text(self.files_added, 'file')} added, {self.files_dropped} dropped"
        return f"published as {self.metadata_location}: {files}"

    @property
    def idle(self) -> bool:
        """Whether there are no other rows than those that were published before."""
        return not self.snapshots


@dataclass(frozen=True, slots=True)
class _Chain:
    """A publication as the next one needs it; ``live`` are the files by id, if this process has found them.

    ``refused`` are versions with tags that cannot be published.
    """

    file: MetadataFile | None
    metadata: TableMetadataV2
    manifests: Mapping[ManifestContent, Manifests]
    live: LiveFiles | None = None
    refused: frozenset[int] = frozenset()


_known: OrderedDict[tuple[str, str], tuple[MetadataFile, _Chain | None]] = OrderedDict()
"""The latest metadata file that this process has seen of a table, and the publication, if it made that."""

_lock = Lock()


def current(table: Table) -> Published | None:
    """Return the latest published version of a table; None if it is not published. One request if it is known.

    The metadata of an instance that was moved or copied name files at its old place: it is to be published again.

    Raises DamagedError for metadata that Lakebed did not write, StorageError.
    """
    file = _latest(table)
    if file is None or file.ended or not _is_here(table, file):
        return None
    return Published(table.id, file.version, file.number, _location(table, file.number), file.data)


def publish(table: Table, *, raw: bool | None = None) -> PublishReport:
    """Publish the latest version of a table, unless it is published already.

    With ``raw`` all stored rows are rows, also of a table that merges them; None: as it was published before.

    Raises:
        UsageError: the setting is not made, or pyiceberg is not installed.
        RejectedError: rows are computed by a merge, or files have to be rewritten: compact the table.
        DamagedError: another program wrote metadata, or changed ours.
        ContentionError: others published all the time.
        StorageError: nothing was published, or that is not clear: publish again.
    """
    if table.settings_in_force().publish is not Publish.ICEBERG:
        raise Code.NOT_PUBLISHED(
            f"table {table.name} is not published: set publish=iceberg first (`lakebed settings set {table.name} "
            "publish=iceberg`), which also retains the files of published versions",
            table=table.name,
        )
    with optional_imports():
        import pyiceberg.manifest  # noqa: F401 - an error names the extra if it is missing
    anew = False
    for _ in attempts(ATTEMPTS_MAX):
        report = _publish_once(table, raw=raw, anew=anew)
        # A collector retires files and then reads the metadata, and here the metadata are put and then the state is
        # read, so one of them sees what the other did.
        if report is not None and table.state().retains(report.version):
            return report
        anew = report is not None
    raise Code.PUBLICATION_CONTENDED(f"table {table.name} was published by others {ATTEMPTS_MAX} times; try again")


def partitions_to_rewrite(table: Table) -> list[int]:
    """Return the partitions with files that other engines cannot read. Reads the footers of all files."""
    from lakebed.upkeep.publish.file_entries import is_readable

    state = table.state()
    found = {file.id: file for partition in state.partitions.ids for file in state.files_of(partition)}
    readable = in_parallel(lambda file: is_readable(table.storage, table.id, file), list(found.values()))
    bad = {name for name, is_good in zip(found, readable, strict=True) if not is_good}
    return [one for one in state.partitions.ids if any(file.id in bad for file in state.files_of(one))]


def _publish_once(table: Table, *, raw: bool | None, anew: bool) -> PublishReport | None:
    """Publish the latest version; None if another publisher was faster. ``anew``: without the snapshots of before."""
    last, head = _latest(table), _head(table)
    wanted = _properties(table, last, raw=raw)
    if last is not None and _is_current(table, last, head.version, wanted):
        return PublishReport(table.name, last.version, last.number, _location(table, last.number))
    before = _empty_chain(table, last) if anew else _chain(table, last)
    if last is not None and not last.ended and last.properties[record.ROWS] != wanted[record.ROWS]:
        # Other rows of the same files are hidden.
        before = replace(before, live=None)
    number = (0 if last is None else last.number) + 1
    after, report = _Publication(table, number, wanted).chain(before, head)
    assert after.file is not None
    if not is_stored(table.storage, after.file.name, after.file.data):
        return None
    latest = record.latest_number(table.storage, table.id)
    if latest > number and not _follows(table, after.file):
        table.storage.delete([after.file.name])
        return None
    _remember(table, after.file, after)
    table.storage.replace(version_hint_name(table.id), str(latest).encode())
    if number > record.METADATA_KEPT:
        table.storage.delete([metadata_name(table.id, number - record.METADATA_KEPT)])
    return report


class _Publication:
    """One attempt to publish a table: writes its parts, and makes the metadata."""

    def __init__(self, table: Table, number: int, properties: Mapping[str, str]) -> None:
        self._table = table
        self._number = number
        self._properties = properties
        self._report = PublishReport(table.name, 0, number, _location(table, number))

    def chain(self, before: _Chain, head: Head[TableState]) -> tuple[_Chain, PublishReport]:
        """Return the publication of a version after an earlier one, and what it did. Writes all but the metadata."""
        from lakebed.upkeep.publish import metadata as iceberg

        state, after = head.state, before
        published = -1 if before.file is None or not before.metadata.snapshots else before.file.version
        for version in sorted({one for one in state.tags.values() if published < one < state.version}):
            after = self._with_tagged(after, version, self._with_version)
        after = self._with_version(after, head)
        older = {version for version in state.tags.values() if version <= published} - after.refused
        for version in sorted(older - iceberg.snapshots_by_version(after.metadata).keys()):
            after = self._with_tagged(after, version, self._with_tag)
        tags = {name: version for name, version in state.tags.items() if version not in after.refused}
        described = iceberg.with_tags(after.metadata, self._tags(tags, after.metadata))
        described = iceberg.without_old(described, self._expiry_ms())
        described, data = iceberg.finished(described, before.file, state, self._properties)
        file = MetadataFile(self._table.id, self._number, data)
        return replace(after, file=file, metadata=described), replace(self._report, version=state.version)

    def _with_tagged(
        self, before: _Chain, version: int, with_version: Callable[[_Chain, Head[TableState]], _Chain]
    ) -> _Chain:
        """Return the publication with a version that has tags; without it, if its rows cannot be published.

        Those of later versions can, once the table was compacted; the tagged one stays as it is.
        """
        try:
            return with_version(before, self._table.log.at(version))
        except RejectedError as error:
            if error.code not in UNPUBLISHABLE:
                raise
        return replace(before, refused=before.refused | {version})

    def _with_version(self, before: _Chain, head: Head[TableState]) -> _Chain:
        """Return the publication with a version as the current snapshot, if it has other rows than the last."""
        from lakebed.upkeep.publish.hidden_rows import live_files
        from lakebed.upkeep.publish.metadata import with_snapshot

        live = live_files(self._table.versions, _rows_of(head, self._properties[record.ROWS]), before.live)
        writer = self._writer(head)
        changes = self._changes(writer, before, live)
        if not changes:
            return replace(before, live=live)
        described, manifests = with_snapshot(
            writer, before.metadata, before.manifests, changes, self._committed_ms(head.version)
        )
        report = self._report
        self._report = replace(
            report,
            snapshots=report.snapshots + 1,
            files_added=report.files_added + len(changes.added),
            files_dropped=report.files_dropped + len(changes.dropped),
            deletes_written=report.deletes_written + sum(one is not None for one in changes.deletes.values()),
        )
        return replace(before, metadata=described, manifests=manifests, live=live)

    def _changes(self, writer: PartWriter, before: _Chain, live: LiveFiles) -> FileChanges:
        """Return what differs from the last snapshot, of which ``live`` knows the files unless it is the first."""
        from pyiceberg.manifest import ManifestContent

        from lakebed.upkeep.publish.metadata import FileChanges

        data, deletes = (before.manifests[one].places for one in (ManifestContent.DATA, ManifestContent.DELETES))
        changed = {self._path(writer, live.files[name].file): live.files[name] for name in sorted(live.changed)}
        if before.live is None:
            kept = {self._path(writer, one.file) for one in live.files.values()}
            dropped = [path for path in data if path not in kept]
        else:
            dropped = [self._path(writer, before.live.files[name].file) for name in sorted(live.gone)]
        hiding = {path: one for path, one in changed.items() if one.hidden or path in deletes}
        added = [one for path, one in changed.items() if path not in data]
        return FileChanges(in_parallel(self._entry, added), dropped, self._deletes_of(writer, hiding))

    def _with_tag(self, before: _Chain, head: Head[TableState]) -> _Chain:
        """Return the publication with a snapshot of an older version, which shares no manifest with others."""
        from lakebed.upkeep.publish.hidden_rows import live_files
        from lakebed.upkeep.publish.metadata import with_tagged_snapshot

        shown = _rows_of(head, self._properties[record.ROWS])
        writer, live = self._writer(head), live_files(self._table.versions, shown).files.values()
        deletes = self._deletes_of(writer, {self._path(writer, one.file): one for one in live if one.hidden})
        entries = in_parallel(self._entry, list(live))
        committed_ms = self._committed_ms(head.version)
        described = with_tagged_snapshot(writer, before.metadata, entries, deletes, committed_ms)
        return replace(before, metadata=described)

    def _path(self, writer: PartWriter, file: files.DataFile) -> str:
        return writer.io.root + data_name(self._table.id, file)

    def _entry(self, live: LiveRows) -> DataFile:
        from lakebed.upkeep.publish.file_entries import file_entry

        return file_entry(self._table.storage, self._table.id, live.file)

    def _deletes_of(self, writer: PartWriter, live: Mapping[str, LiveRows]) -> dict[str, DataFile | None]:
        """Write the deletes of data files, by their paths; None for a file without hidden rows."""
        return dict(in_parallel(lambda pair: (pair[0], self._deletes(writer, *pair)), list(live.items())))

    def _deletes(self, writer: PartWriter, path: str, live: LiveRows) -> DataFile | None:
        from lakebed.upkeep.publish.deletes import position_deletes

        if not live.hidden:
            return None
        data, facts = position_deletes({path: live.hidden})
        return facts.data_file(writer.write("rows", "parquet", data))

    def _writer(self, head: Head[TableState]) -> PartWriter:
        from lakebed.upkeep.publish.metadata import PartWriter

        return PartWriter(self._table.storage, self._table.id, self._number, head.state)

    def _tags(self, tags: Mapping[str, int], described: TableMetadataV2) -> dict[str, int]:
        """Return tags with the version of the snapshot that has the rows of theirs."""
        from lakebed.upkeep.publish.metadata import snapshots_by_version

        versions = sorted(snapshots_by_version(described))
        return {name: max((one for one in versions if one <= at), default=0) for name, at in tags.items()}

    def _committed_ms(self, version: int) -> int:
        return int(self._table.log.last_modified_or_epoch(version).timestamp() * 1000)

    def _expiry_ms(self) -> int:
        return int(clock.now().timestamp() * 1000) - self._table.settings_in_force().history_s * 1000


# -- what this process knows -----------------------------------------------------------------------------------------


def _latest(table: Table) -> MetadataFile | None:
    """Return the latest metadata file; it is read if this process does not know it."""
    with _lock:
        known, _ = _known.get(_key(table), (None, None))
    file = latest_metadata(table.storage, table.id, known)
    if file is not None and file is not known:
        _remember(table, file, None)
    return file


def _chain(table: Table, file: MetadataFile | None) -> _Chain:
    """Return the publication of a metadata file: as this process made it, or as it is read; an empty one if need be."""
    from lakebed.upkeep.publish import metadata as iceberg
    from lakebed.upkeep.publish.storage_io import StorageIO

    with _lock:
        known, made = _known.get(_key(table), (None, None))
    if made is not None and known is file:
        return made
    if file is not None and not file.ended:
        found, io = iceberg.parsed(file), StorageIO(table.storage)
        # The paths in metadata are absolute, so those of an instance that was moved are of no use.
        if found.location == location_of(table.storage, iceberg_folder(table.id)):
            manifests = iceberg.read_manifests(io, found.current_snapshot())
            return _Chain(file, found, manifests, _known_files(table, file, manifests, io))
    return _empty_chain(table, file)


def _empty_chain(table: Table, file: MetadataFile | None) -> _Chain:
    """Return a publication without snapshots, after that one."""
    from lakebed.upkeep.publish import metadata as iceberg
    from lakebed.upkeep.publish.storage_io import StorageIO

    described = iceberg.new_metadata(table.storage, table.id, table.state())
    return _Chain(file, described, iceberg.read_manifests(StorageIO(table.storage), None))


def _known_files(
    table: Table, file: MetadataFile, manifests: Mapping[ManifestContent, Manifests], io: StorageIO
) -> LiveFiles | None:
    """Return the files of the published version, with the hidden rows that were written; None if its log is gone."""
    from pyiceberg.manifest import ManifestContent

    from lakebed.upkeep.publish.deletes import read_position_deletes
    from lakebed.upkeep.publish.hidden_rows import LiveFiles

    try:
        head = table.log.at(file.version)
    except NotRetainedError:
        return None
    deletes = manifests[ManifestContent.DELETES]
    paths = [entry.file_path for _, entry in deletes.files_of(io)]
    hidden = {}
    for read in in_parallel(lambda path: read_position_deletes(io.read(path)), paths):
        for path, positions in read.items():
            hidden[path.rpartition("/")[2].removesuffix(".parquet")] = positions
    return LiveFiles.published(_rows_of(head, file.properties[record.ROWS]), hidden)


def _rows_of(head: Head[TableState], rows: str) -> Head[TableState]:
    """Return a version as it is published: without its merge mode if all stored rows count."""
    return structs.replace(head, state=structs.replace(head.state, merge=KEEP_ALL)) if rows == RAW else head


def _head(table: Table) -> Head[TableState]:
    """Return the latest version, with its state. Raises NotFoundError for a dropped table."""
    version = table.snapshot().version
    head = table.log.head
    return head if head.version == version else table.log.at(version)


def _properties(table: Table, file: MetadataFile | None, *, raw: bool | None) -> dict[str, str]:
    """Return the properties of ours: which rows are published, and the name of the table."""
    before = MERGED if file is None else file.properties.get(record.ROWS, MERGED)
    return {record.NAME: table.name, record.ROWS: before if raw is None else RAW if raw else MERGED}


def _is_current(table: Table, file: MetadataFile, version: int, wanted: Mapping[str, str]) -> bool:
    """Return whether a publication is of this version, with the wanted rows, and at the place where it is found."""
    is_same = not file.ended and file.version == version and file.properties.get(record.ROWS) == wanted[record.ROWS]
    return is_same and _is_here(table, file)


def _is_here(table: Table, file: MetadataFile) -> bool:
    """Return whether the paths in a publication are of the place where it is found."""
    return bool(file.document.get("location") == location_of(table.storage, iceberg_folder(table.id)))


def _follows(table: Table, file: MetadataFile) -> bool:
    """Return whether the publication after ours was built on it."""
    data = table.storage.get(metadata_name(table.id, file.number + 1))
    if data is None:
        return False
    return MetadataFile(table.id, file.number + 1, data).properties.get(record.PREVIOUS) == file.digest


def _remember(table: Table, file: MetadataFile, made: _Chain | None) -> None:
    with _lock:
        _known[_key(table)] = file, made
        _known.move_to_end(_key(table))
        while len(_known) > KNOWN_MAX:
            _known.popitem(last=False)


def _key(table: Table) -> tuple[str, str]:
    return table.storage.url, table.id


def _location(table: Table, number: int) -> str:
    return location_of(table.storage, metadata_name(table.id, number))
