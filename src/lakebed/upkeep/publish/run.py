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
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, NotRetainedError, RejectedError
from lakebed.log.checkpoint import in_parallel
from lakebed.model.files import data_name, file_of_object, iceberg_folder, metadata_name, version_hint_name
from lakebed.model.foreign_errors import optional_imports
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.reports import WorkReport
from lakebed.model.settings import ICEBERG_FORMATS, Publish
from lakebed.model.wording import count_text
from lakebed.storage.retries import attempts, is_stored
from lakebed.upkeep.publish import record
from lakebed.upkeep.publish.record import MetadataFile, latest_metadata, location_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyiceberg.manifest import DataFile
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.log.checkpoint import Head
    from lakebed.model import files
    from lakebed.model.state.table_state import TableState
    from lakebed.table.table import Table
    from lakebed.upkeep.publish.deletes import DeleteFile, DeletePlan, Hidden
    from lakebed.upkeep.publish.hidden_rows import LiveFiles, LiveRows
    from lakebed.upkeep.publish.manifests import PartWriter
    from lakebed.upkeep.publish.metadata import ByContent, FileChanges, Metadata
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
    """A publication as the next one needs it: what its current snapshot names.

    ``live`` are the data files by id, if their hidden rows are known; ``deletes`` has all of these.
    ``refused`` are versions with tags that cannot be published.
    """

    file: MetadataFile | None
    metadata: Metadata
    manifests: ByContent
    deletes: tuple[DeleteFile, ...] = ()
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
    if table.settings_in_force().publish is Publish.NONE:
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
    reader = table.versions.reader
    readable = in_parallel(lambda file: is_readable(reader.stored_footer(file)), list(found.values()))
    bad = {name for name, is_good in zip(found, readable, strict=True) if not is_good}
    return [one for one in state.partitions.ids if any(file.id in bad for file in state.files_of(one))]


def _publish_once(table: Table, *, raw: bool | None, anew: bool) -> PublishReport | None:
    """Publish the latest version; None if another publisher was faster. ``anew``: without the snapshots of before."""
    last, head = _latest(table), _head(table)
    wanted, format_version = _properties(table, last, raw=raw), ICEBERG_FORMATS[table.settings_in_force().publish]
    if last is not None and _is_current(table, last, head.version, wanted, format_version):
        return PublishReport(table.name, last.version, last.number, _location(table, last.number))
    before = _empty_chain(table, last, format_version) if anew else _chain(table, last, format_version)
    if last is not None and not last.ended and last.properties[record.ROWS] != wanted[record.ROWS]:
        # Other rows of the same files are hidden.
        before = replace(before, live=None)
    number = (0 if last is None else last.number) + 1
    after, report = _Publication(table, number, wanted, format_version).chain(before, head)
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

    def __init__(self, table: Table, number: int, properties: Mapping[str, str], format_version: Literal[2, 3]) -> None:
        self._table = table
        self._number = number
        self._properties = properties
        self._format_version = format_version
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
        from lakebed.upkeep.publish.metadata import Base, with_snapshot

        live = live_files(self._table.versions, _rows_of(head, self._properties[record.ROWS]), before.live)
        writer = self._writer(head)
        changes, deletes = self._changes(writer, before, live)
        if not changes:
            return replace(before, live=live)
        base = Base(before.metadata, before.metadata.current_snapshot(), before.manifests)
        described, manifests = with_snapshot(writer, base, changes, self._committed_ms(head.version))
        report = self._report
        self._report = replace(
            report,
            snapshots=report.snapshots + 1,
            files_added=report.files_added + len(changes.added),
            files_dropped=report.files_dropped + len(changes.dropped),
            deletes_written=report.deletes_written + len(changes.deletes_added),
        )
        return replace(before, metadata=described, manifests=manifests, deletes=tuple(deletes), live=live)

    def _changes(self, writer: PartWriter, before: _Chain, live: LiveFiles) -> tuple[FileChanges, list[DeleteFile]]:
        """Return what differs from a snapshot, and the objects with deletes after that. Writes those that are new."""
        from pyiceberg.manifest import ManifestContent

        from lakebed.upkeep.publish.metadata import FileChanges

        data = before.manifests[ManifestContent.DATA].places
        # All files, if those of the snapshot are not known.
        changed = {self._path(writer, live.files[name].file): live.files[name] for name in sorted(live.changed)}
        added = {path: one for path, one in changed.items() if path not in data}
        if before.live is None:
            dropped = [path for path in data if path not in changed]
        else:
            dropped = [self._path(writer, before.live.files[name].file) for name in sorted(live.gone)]
        plan = self._planned_deletes(writer, before, live, added.keys(), frozenset(dropped))
        entries, files = self._write_deletes(writer, plan.written)
        data_files = in_parallel(partial(self._entry, writer), list(added.values()))
        return FileChanges(data_files, dropped, entries, plan.dropped), [*plan.kept, *files]

    def _planned_deletes(
        self, writer: PartWriter, before: _Chain, live: LiveFiles, added: AbstractSet[str], dropped: AbstractSet[str]
    ) -> DeletePlan:
        from pyiceberg.manifest import ManifestContent

        from lakebed.upkeep.publish.deletes import KINDS, DeletePlan

        kind = KINDS[writer.format_version]
        if before.live is not None:
            known = [before.live.files[name] for name in live.changed if name in before.live.files]
            earlier, now = self._hidden(writer, known), self._hidden(writer, (live.files[one] for one in live.changed))
            comes_back = any(not added.isdisjoint(file.named) for file in before.deletes)
            if not comes_back and all(path in now and rows <= now[path] for path, rows in earlier.items()):
                return kind.plan(before.deletes, earlier, now, dropped)
        hidden = self._hidden(writer, live.files.values())
        return DeletePlan(kind.anew(hidden), [], list(before.manifests[ManifestContent.DELETES].places))

    def _with_tag(self, before: _Chain, head: Head[TableState]) -> _Chain:
        """Return the publication with a snapshot of an older version, which shares parts with the one before it."""
        from lakebed.upkeep.publish.hidden_rows import live_files
        from lakebed.upkeep.publish.metadata import Base, last_before, with_tagged_snapshot

        shown, writer = _rows_of(head, self._properties[record.ROWS]), self._writer(head)
        parent = last_before(before.metadata, head.version, self._properties[record.ROWS])
        then = _chain_at(self._table, before.file, before.metadata, parent)
        changes, _ = self._changes(writer, then, live_files(self._table.versions, shown, then.live))
        base = Base(before.metadata, parent, then.manifests)
        described = with_tagged_snapshot(writer, base, changes, self._committed_ms(head.version))
        return replace(before, metadata=described)

    def _path(self, writer: PartWriter, file: files.DataFile) -> str:
        return writer.io.root + data_name(self._table.id, file)

    def _entry(self, writer: PartWriter, live: LiveRows) -> DataFile:
        from lakebed.upkeep.publish.file_entries import file_entry

        footer = self._table.versions.reader.stored_footer(live.file)
        return file_entry(writer.io.root, data_name(self._table.id, live.file), live.file, footer)

    def _hidden(self, writer: PartWriter, live: Iterable[LiveRows]) -> Hidden:
        """Return the hidden rows of files that have any, by their paths."""
        return {self._path(writer, one.file): one.hidden for one in live if one.hidden}

    def _write_deletes(self, writer: PartWriter, written: Sequence[Hidden]) -> tuple[list[DataFile], list[DeleteFile]]:
        """Write objects with deletes; return their manifest entries, and the objects."""
        from lakebed.upkeep.publish.deletes import KINDS, DeleteFile

        kind = KINDS[writer.format_version]

        def write(hidden: Hidden) -> tuple[list[DataFile], DeleteFile]:
            data, facts = kind.encode(hidden)
            path = writer.write("rows", kind.file_format.lower(), data)
            return kind.entries(path, len(data), facts), DeleteFile.of(path, hidden)

        done = in_parallel(write, written)
        return [entry for entries, _ in done for entry in entries], [file for _, file in done]

    def _writer(self, head: Head[TableState]) -> PartWriter:
        from lakebed.upkeep.publish.manifests import PartWriter

        rows, version = self._properties[record.ROWS], self._format_version
        return PartWriter(self._table.storage, head.state, self._number, rows=rows, format_version=version)

    def _tags(self, tags: Mapping[str, int], described: Metadata) -> dict[str, int]:
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


def _chain(table: Table, file: MetadataFile | None, format_version: Literal[2, 3]) -> _Chain:
    """Return a publication as this process made it, or as it is read; an empty one if there is nothing to go on from.

    It is of a format: it may be upgraded.
    """
    from lakebed.upkeep.publish import metadata as iceberg

    with _lock:
        known, made = _known.get(_key(table), (None, None))
    if made is not None and known is file:
        return _of_format(table, made, format_version)
    if file is not None and not file.ended:
        found = iceberg.parsed(file)
        # The paths in metadata are absolute, so those of an instance that was moved are of no use.
        if found.location == location_of(table.storage, iceberg_folder(table.id)):
            chain = _chain_at(table, file, found, found.current_snapshot(), file.version)
            return _of_format(table, chain, format_version)
    return _empty_chain(table, file, format_version)


def _of_format(table: Table, chain: _Chain, format_version: Literal[2, 3]) -> _Chain:
    """Return a publication to go on from in this format."""
    from lakebed.upkeep.publish.metadata import upgraded

    if chain.metadata.format_version == format_version:
        return chain
    if chain.metadata.format_version == 2:
        # Deletes of format 3 are written for all files.
        return replace(chain, metadata=upgraded(chain.metadata), live=None)
    return _empty_chain(table, chain.file, format_version)


def _empty_chain(table: Table, file: MetadataFile | None, format_version: Literal[2, 3]) -> _Chain:
    """Return a publication without snapshots, after that one."""
    from lakebed.upkeep.publish import metadata as iceberg

    described = iceberg.new_metadata(table.storage, table.id, table.state(), format_version)
    return _chain_at(table, file, described, None)


def _chain_at(
    table: Table, file: MetadataFile | None, metadata: Metadata, snapshot: Snapshot | None, version: int | None = None
) -> _Chain:
    """Return a publication with what a snapshot names, which has the rows of a version: None for that of its summary.

    The hidden rows are not known if the log of that version is gone, or if they are of another format.
    """
    from lakebed.upkeep.publish.manifests import read_manifests
    from lakebed.upkeep.publish.metadata import version_of
    from lakebed.upkeep.publish.storage_io import StorageIO

    io = StorageIO(table.storage)
    chain = _Chain(file, metadata, read_manifests(io, None if snapshot is None else snapshot.manifest_list))
    if file is None or snapshot is None:
        return chain
    try:
        head = table.log.at(version_of(snapshot) if version is None else version)
    except NotRetainedError:
        return chain
    deletes = _read_deletes(chain, io)
    if deletes is None:
        return chain
    return replace(chain, deletes=deletes, live=_live(table, _rows_of(head, file.properties[record.ROWS]), deletes, io))


def _read_deletes(chain: _Chain, io: StorageIO) -> tuple[DeleteFile, ...] | None:
    """Return the objects with deletes that the manifests name; None if some are not of the format of the metadata."""
    from pyiceberg.manifest import ManifestContent

    from lakebed.upkeep.publish.deletes import KINDS

    kind, manifests = KINDS[chain.metadata.format_version], chain.manifests[ManifestContent.DELETES]
    entries: dict[str, list[DataFile]] = {}
    for manifest in manifests.files:
        for entry in manifests.entries_of(io, manifest):
            entries.setdefault(entry.data_file.file_path, []).append(entry.data_file)
    if any(one.file_format != kind.file_format for named in entries.values() for one in named):
        return None
    return tuple(in_parallel(lambda path: kind.read(path, io.read(path), entries[path]), list(entries)))


def _live(table: Table, head: Head[TableState], deletes: Iterable[DeleteFile], io: StorageIO) -> LiveFiles:
    """Return the files of a version with the hidden rows that were written."""
    from pyroaring import BitMap64

    from lakebed.upkeep.publish.hidden_rows import LiveFiles

    hidden: dict[str, BitMap64] = {}
    for file in deletes:
        for path, positions in file.hidden.items():
            # Of a file that is not referenced any more they may be there still.
            if (found := file_of_object(table.id, io.name_of(path))) is not None:
                hidden[found[1]] = hidden.get(found[1], BitMap64()) | positions
    return LiveFiles.published(head, hidden)


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


def _is_current(
    table: Table, file: MetadataFile, version: int, wanted: Mapping[str, str], format_version: Literal[2, 3]
) -> bool:
    """Return whether a publication is of this version and format, with the wanted rows, at the place where it is."""
    is_same = not file.ended and file.version == version and file.properties.get(record.ROWS) == wanted[record.ROWS]
    is_same = is_same and file.document.get("format-version") == format_version
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
