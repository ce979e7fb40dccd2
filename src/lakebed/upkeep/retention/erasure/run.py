"""Erasure reports: reads every object that may still contain rows of a table, and reports those that do.

Searched are the data files of all versions that are retained, files that are retired and not deleted, orphans, the
files of requests that are open or were rejected, all files in the folders of exports, quarantines and queries on record
(:mod:`lakebed.read.inspect.history`), and the rows that are kept of submitted queries. Of log entries, checkpoints and
summaries the keys are searched, if keys tell which rows are wanted. Unreadable objects are listed as well: a report
without places and without unread objects proves the erasure, except for :data:`NOT_SEARCHED`.

The state is read first and the objects are listed after it, so a file that is committed meanwhile is an orphan of the
report. A file that is deleted meanwhile is skipped.

Core types: :class:`ErasurePlace`, :class:`UnreadObject`, :class:`ErasureReport`.

Errors: UsageError for a predicate that does not fit; StorageError if the store of the table does not answer.

*Rows of submitted queries that the instance keeps: which objects may hold rows of a table, and when they are deleted.*

A scan names its table. A statement may read a table if its text has the table's name; its rows are then searched, if
they have the necessary columns.

Core type: :class:`KeptRows`. Errors: StorageError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from lakebed.errors import Code, DamagedError, Error, NotFoundError, NotRetainedError, UsageError
from lakebed.log import entry as entries
from lakebed.model.files import data_folder, data_name, parts_folder, query_object, summary_name, table_prefix
from lakebed.model.html_tables import FactsView
from lakebed.model.state.machine import TABLE
from lakebed.read.inspect.history import read_copies
from lakebed.read.snapshot.pins import read_pins
from lakebed.storage import connect
from lakebed.storage.external import options_for
from lakebed.table.tracker.listing import read_failures
from lakebed.table.tracker.submitted_queries import ROWS, QueryObjects, may_read
from lakebed.upkeep.retention.erasure.plan import (
    Going,
    Where,
    entry_going,
    file_going,
    held_files,
    is_data,
    orphan_going,
    unnamed,
)
from lakebed.upkeep.retention.erasure.search import (
    KeySearch,
    SearchedObject,
    SearchTask,
    Wanted,
    counted,
    keys_in,
    keys_of_state,
)
from lakebed.upkeep.retention.run import last_modified_of
from lakebed.write import batches as runner
from lakebed.write.sources import is_gone

if TYPE_CHECKING:
    from lakebed.log.checkpoint import Head
    from lakebed.model.keys import KeyRange
    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Listed, Storage
    from lakebed.table.table import Table
    from lakebed.table.tracker.submitted_queries import FoundQuery, SubmittedQuery


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What a query keeps: ``objects`` with rows, in the ``folder``; ``unclear`` is why there may be more, or come.

    ``version`` is that of the table which a scan reads.
    """

    folder: str
    objects: tuple[str, ...]
    unclear: str | None
    version: int | None
    going: Going


def kept_rows(storage: Storage, table_id: str, table: str) -> Iterator[KeptRows]:
    """Return the queries that may have read the table and keep their rows in the instance."""
    queries = QueryObjects(storage)
    for found in queries.found():
        try:
            query = queries.query(found.id)
        except NotFoundError:
            # Deleted since it was listed, or the remains of a deleted query: the table of its rows is unknown.
            yield _kept_rows(storage, found, None, None)
        except DamagedError as error:
            yield _kept_rows(storage, found, None, error.message)
        else:
            if query.url is None and may_read(query, table_id, table):
                unclear = None if found.ended else "the query has not ended: it may still write such rows"
                yield _kept_rows(storage, found, query, unclear)


def _kept_rows(storage: Storage, found: FoundQuery, query: SubmittedQuery | None, unclear: str | None) -> KeptRows:
    folder = query_object(found.id, ROWS)
    # Objects that begin with an underscore are manifests, which have no rows.
    names = [one.name for one in storage.list(folder)]
    objects = tuple(name for name in names if not name.rpartition("/")[2].startswith("_"))
    version = None if query is None or query.scan is None else query.scan.version
    return KeptRows(folder, objects, unclear, version, _going(found, query))


def _going(found: FoundQuery, query: SubmittedQuery | None) -> Going:
    due: datetime | None = None
    if query is not None and found.ended is not None:
        due = found.ended + timedelta(seconds=query.kept_s)
    return Going(f"lakebed gc, or a service, after it expires; now: lakebed query drop {found.id}", due)


Execute = runner.Execute[SearchTask, SearchedObject]
"""Runs search tasks."""

NOT_SEARCHED = (
    "copies that Lakebed did not make: files written from frames and queries, backups, old versions of objects",
    "caches on local disk (cache_dir), which hold copies until they are evicted; delete their folders to empty them",
    "interrupted uploads to an object store, and temporary folders of processes that were killed",
    "texts in the log: reasons of refusals, predicates of filters, names of files and tags",
    "other tables and dropped tables of the instance; report on each of them",
)
"""What a report says nothing of."""

_BY_HAND = "delete the file yourself"
_UNFINISHED = "a put that is under way, or whose process died, has stored all or a part of a file or a log entry here"


@dataclass(frozen=True, slots=True)
class RowsSought:
    """Rows with a key in any of the ranges (without ranges: all) for which the predicate ``where`` is true."""

    ranges: tuple[KeyRange, ...] = ()
    where: str | None = None


@dataclass(frozen=True, slots=True)
class ErasurePlace:
    """An object that holds wanted rows, or their keys.

    ``rows`` are wanted rows, ``live_rows`` those of them that the latest version shows, ``unclear_rows`` may be wanted
    and lack a value to tell; ``keys`` counts keys and bounds of rows. Versions from ``first_version`` to
    ``last_version`` (null: the latest) refer to it. ``goes`` describes how it is deleted, ``due`` when ``lakebed gc``
    may delete it.
    """

    where: Where
    object: str
    rows: int = 0
    live_rows: int = 0
    unclear_rows: int = 0
    keys: int = 0
    first_version: int | None = None
    last_version: int | None = None
    tags: tuple[str, ...] = ()
    pins: tuple[int, ...] = ()
    goes: str = ""
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class UnreadObject:
    """An object or a folder that may hold wanted rows and could not be read."""

    where: Where
    object: str
    reason: str
    goes: str = ""
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class ErasureReport(FactsView):
    """Where wanted rows of a table are, as of ``version``.

    ``searched`` counts the objects that were read, by kind. ``keys_searched`` is false if the predicate names other
    columns than those of the row key, so that keys in logs and checkpoints could not be compared.
    """

    table: str
    version: int
    where: str | None
    places: tuple[ErasurePlace, ...]
    unread: tuple[UnreadObject, ...]
    searched: dict[str, int]
    keys_searched: bool
    not_searched: tuple[str, ...] = NOT_SEARCHED

    @property
    def erased(self) -> bool:
        """Whether everything was read, and no such row or key was found."""
        return not self.places and not self.unread


@dataclass(frozen=True, slots=True)
class _Looked:
    """An object to search, and how to report it if something is found."""

    task: SearchTask
    place: ErasurePlace


@dataclass(slots=True)
class _Found:
    places: list[ErasurePlace] = field(default_factory=list)
    unread: list[UnreadObject] = field(default_factory=list)
    searched: Counter[str] = field(default_factory=Counter)


def erase_report(
    table: Table,
    rows: RowsSought,
    also: Sequence[str],
    options: Mapping[str, str],
    execute: Execute,
) -> ErasureReport:
    """Search everything. ``also`` are URLs of further folders with copies of rows; ``options`` those of the instance.

    Raises:
        UsageError: neither a predicate nor a range, or an invalid one.
        StorageError: the store of the table, or of its log, does not answer.
    """
    where = rows.where
    if where is None and not rows.ranges:
        raise Code.ARGUMENT_MISSING("an erasure report is about some rows: give where, a predicate, or ranges of keys")
    state = table.state()
    schema = state.created
    wanted = Wanted(schema, where, schema.codec.encode_ranges(rows.ranges))
    predicate = wanted.predicate()
    # Listed after the state: files committed from here on are not in it.
    listed = list(table.storage.list(data_folder(table.id)))
    found = _Found()
    looked = [
        *_data_files(table, state, wanted),
        *_orphans(table, state, wanted, listed, found),
        *_requests(table, state, wanted),
        *_copies(table, wanted, also, options, found),
        *_queries(table, wanted, found),
    ]
    results = list(execute([one.task for one in looked])) if looked else []
    for one, result in zip(looked, results, strict=True):
        _note(table, one, result, found)
    search = KeySearch.of(wanted, predicate)
    if search is not None:
        _log_keys(table, search, found)
        _checkpoint_keys(table, search, found)
    left = _texts(table, state)
    return ErasureReport(
        table.name,
        state.version,
        where,
        tuple(found.places),
        tuple(found.unread),
        dict(found.searched),
        search is not None,
        NOT_SEARCHED + left + (() if search is not None else (_KEYS_UNKNOWN,)),
    )


_KEYS_UNKNOWN = (
    "keys in log entries, checkpoints and summaries: the predicate names other columns than those of the row key. If "
    "keys are to be erased, report on them by a predicate on the row key"
)


def _texts(table: Table, state: TableState) -> tuple[str, ...]:
    """Return what may quote a value besides the objects that are searched: texts in the log, published bounds."""
    failures = sum(1 for _ in read_failures(table.storage, table.id))
    rejected = len(state.rejected)
    found = [f"{failures} records of failed calls, which quote values (lakebed history --failures)"] if failures else []
    found += [f"{rejected} rejected requests, whose reasons quote values (lakebed requests list)"] if rejected else []
    parts = sum(1 for _ in table.storage.list(parts_folder(table.id)))
    found += (
        [f"{parts} objects of the published table, which have bounds of columns (`lakebed docs open`)"] if parts else []
    )
    indexes = len(state.indexes)
    found += (
        [f"{indexes} indexes, which have keys and values: report on each (`lakebed docs second-key`)"]
        if indexes
        else []
    )
    return tuple(found)


# -- what is searched -----------------------------------------------------------------------------------------------


def _task(table: Table, wanted: Wanted, name: str, **more: object) -> SearchTask:
    limit = table.settings_in_force().memory_limit_bytes
    return replace(SearchTask(name, wanted, limit), **more)  # type: ignore[arg-type]


def _data_files(table: Table, state: TableState, wanted: Wanted) -> Iterator[_Looked]:
    pins = read_pins(table.storage, table.id).versions
    settings, times = table.settings_in_force(), partial(last_modified_of, table)
    for held in held_files(state, pins):
        file, going = held.file, file_going(held, times, settings)
        name = data_name(table.id, file)
        summary = summary_name(table.id, file) if file.summarised else None
        task = _task(table, wanted, name, digest=file.digest, live=held.live, summary=summary, rows=file.rows)
        place = ErasurePlace(
            held.where,
            table.storage.object_url(name),
            first_version=held.first,
            last_version=held.last,
            tags=held.tags,
            pins=held.pins,
            goes=going.how,
            due=going.due,
        )
        yield _Looked(task, place)


def _orphans(
    table: Table, state: TableState, wanted: Wanted, listed: Sequence[Listed], found: _Found
) -> Iterator[_Looked]:
    times = {one.name: one.last_modified for one in listed}
    settings = table.settings_in_force()
    for name in unnamed(state, times):
        going, url = orphan_going(times[name], settings), table.storage.object_url(name)
        if is_data(table.id, name):
            yield _Looked(_task(table, wanted, name), ErasurePlace(Where.ORPHAN, url, goes=going.how, due=going.due))
        elif not name.endswith(".summary"):
            reason = "an object of an unknown kind: look at it"
            found.unread.append(UnreadObject(Where.ORPHAN, url, reason, "move or delete it yourself"))
    for one in table.storage.temporaries(table_prefix(table.id)):
        going, url = orphan_going(one.last_modified, settings), f"{table.storage.url}/{one.name}"
        found.unread.append(UnreadObject(Where.ORPHAN, url, _UNFINISHED, going.how, going.due))


def _requests(table: Table, state: TableState, wanted: Wanted) -> Iterator[_Looked]:
    for request in (*state.open_requests.values(), *state.rejected):
        done = "rejected" if request.rejected else "open"
        for source in request.files:
            goes = f"{_BY_HAND}; the request is {done}" + ("" if request.rejected else ": withdraw it before")
            yield _Looked(
                _task(table, wanted, source.url, by_id=False, source=source),
                ErasurePlace(Where.REQUEST, source.url, first_version=request.submitted, goes=goes),
            )


def _copies(
    table: Table, wanted: Wanted, also: Sequence[str], home: Mapping[str, str], found: _Found
) -> Iterator[_Looked]:
    records = {one.url: (Where(one.kind.value), one.version) for one in read_copies(table.storage, table.id)}
    folders = dict.fromkeys(also, (Where.OTHER, None)) | records
    for url, (where, version) in folders.items():
        options = options_for(url, table.storage.url, home)
        try:
            folder = connect(url, options)
            names, unfinished = ([one.name for one in listed("")] for listed in (folder.list, folder.temporaries))
        except Error as error:
            if where is Where.OTHER and isinstance(error, UsageError):
                raise
            if not isinstance(error, NotFoundError):
                found.unread.append(UnreadObject(where, url, error.message, _BY_HAND))
            continue
        found.unread += [UnreadObject(where, f"{url.rstrip('/')}/{name}", _UNFINISHED, _BY_HAND) for name in unfinished]
        for name in names:
            if name.rpartition("/")[2].startswith("_"):
                # A manifest or _SUCCESS; they hold no rows.
                continue
            by_id = where is Where.EXPORT and name.endswith(".parquet")
            yield _Looked(
                _task(table, wanted, name, by_id=by_id, root=url, options=options),
                ErasurePlace(where, f"{url.rstrip('/')}/{name}", first_version=version, goes=_BY_HAND),
            )


def _queries(table: Table, wanted: Wanted, found: _Found) -> Iterator[_Looked]:
    for kept in kept_rows(table.storage, table.id, table.name):
        if kept.unclear is not None:
            url = table.storage.object_url(kept.folder)
            found.unread.append(UnreadObject(Where.QUERY, url, kept.unclear, kept.going.how))
        for name in kept.objects:
            # By the names of columns: a query may choose some of them, and compute others.
            place = ErasurePlace(Where.QUERY, table.storage.object_url(name), first_version=kept.version)
            yield _Looked(
                _task(table, wanted, name, by_id=False), replace(place, goes=kept.going.how, due=kept.going.due)
            )


def _note(table: Table, one: _Looked, result: SearchedObject | Error, found: _Found) -> None:
    place = one.place
    if isinstance(result, NotFoundError) and not isinstance(result, NotRetainedError):
        # Deleted since it was listed, or by the user before; a file in use has to be there.
        if place.where is Where.IN_USE:
            found.unread.append(UnreadObject(place.where, place.object, result.message))
        return
    if isinstance(result, Error):
        source = one.task.source
        if source is None or result.code is not Code.SOURCE_CHANGED or not is_gone(source, table.storage):
            found.unread.append(UnreadObject(place.where, place.object, result.message, place.goes, place.due))
        return
    found.searched[place.where] += 1
    if result.rows or result.unclear_rows:
        rows, live_rows, unclear_rows = result.rows, result.live_rows, result.unclear_rows
        found.places.append(replace(place, rows=rows, live_rows=live_rows, unclear_rows=unclear_rows))
    if one.task.summary is not None:
        found.searched[Where.SUMMARY] += 1
        if result.summary_keys:
            url = table.storage.object_url(one.task.summary)
            goes = f"with its data file: {place.goes}"
            found.places.append(
                replace(place, where=Where.SUMMARY, object=url, keys=result.summary_keys, rows=0, goes=goes)
            )


# -- keys -----------------------------------------------------------------------------------------------------------


def _log_keys(table: Table, search: KeySearch, found: _Found) -> None:
    log, settings = table.log, table.settings_in_force()
    for stored in log.newest_first():
        entry = stored.entry
        found.searched[Where.LOG_ENTRY] += 1
        sidecars = log.read_sidecars(entry) if entry.sidecars else {}
        keys = 0
        for document in entry.documents:
            with entries.naming(table.id, entry.version):
                keys += counted(search, keys_in(TABLE.decode(document, sidecars)))
        if keys:
            going = entry_going(stored.stored_at, settings)
            name = f"{table.storage.object_url(f'tables/{table.id}/log')} entry {entry.version}"
            place = ErasurePlace(Where.LOG_ENTRY, name, keys=keys, goes=going.how, due=going.due)
            found.places.append(replace(place, first_version=entry.version, last_version=entry.version))


def _checkpoint_keys(table: Table, search: KeySearch, found: _Found) -> None:
    log = table.log
    log.wait_for_checkpoint()
    readers: list[tuple[str, Callable[[], Head[TableState] | None]]] = [("latest", log.checkpoints.read_whole)]
    readers += [(f"{version}", partial(log.retained.read, version)) for version in log.retained.versions()]
    for name, read in readers:
        url = f"{table.storage.object_url(f'tables/{table.id}/checkpoints')}/{name}"
        try:
            head = read()
        except Error as error:
            found.unread.append(UnreadObject(Where.CHECKPOINT, url, error.message))
            continue
        if head is None:
            continue
        found.searched[Where.CHECKPOINT] += 1
        version, keys = head.version, counted(search, keys_of_state(head.state))
        if keys:
            retained = "lakebed gc truncates the log beyond it, and no tag needs it"
            goes = "the next checkpoint, once no file or partition has such bounds" if name == "latest" else retained
            place = ErasurePlace(Where.CHECKPOINT, url, keys=keys, first_version=version, last_version=version)
            found.places.append(replace(place, goes=goes))
