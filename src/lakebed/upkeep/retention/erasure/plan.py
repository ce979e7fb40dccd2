"""Plans an erasure report: the objects to search, from a table state and listings. Pure: no I/O.

All data files of the state are searched: files in use, files that older versions need, and retired files that are not
deleted yet. Orphans, the objects of the data folder that the state does not name, are searched too.

Core types: :class:`HeldFile`; :class:`Going`, when and how an object is deleted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from lakebed.model.files import file_of_object, object_names
from lakebed.model.keys import EncodedRange, iter_ranges

if TYPE_CHECKING:
    from lakebed.model.files import CommittedFile, DataFile
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState


class Where(StrEnum):
    """The kind of object in which rows or keys were found."""

    IN_USE = "in use"
    """A data file of the latest version."""
    OLDER_VERSIONS = "older versions"
    """A data file that only older versions refer to."""
    RETIRED = "retired"
    """A data file that is about to be deleted."""
    ORPHAN = "orphan"
    """A data file that no version refers to: of a write that failed, or is under way."""
    REQUEST = "request"
    """A file of a user that waits to be ingested, or was rejected."""
    EXPORT = "export"
    """A file of an export."""
    QUARANTINE = "quarantine"
    """A file of rows that an import rejected."""
    QUERY = "query"
    """A file with rows of a submitted query."""
    OTHER = "other"
    """A file in a folder that the caller named."""
    SUMMARY = "summary"
    """The summary of a data file, which holds some of its keys."""
    LOG_ENTRY = "log entry"
    """An entry of the log, with the bounds of files and partitions."""
    CHECKPOINT = "checkpoint"
    """A checkpoint of the state, with the same."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A data file that the state knows. Versions from ``first`` to ``last`` refer to it; None: the latest does too.

    ``live`` are the key ranges of its rows that are in the latest version. ``tags`` and ``pins`` keep it.
    """

    file: DataFile
    where: Where
    first: int
    last: int | None
    tags: tuple[str, ...]
    pins: tuple[int, ...]
    live: tuple[EncodedRange, ...]


@dataclass(frozen=True, slots=True)
class Going:
    """How an object is deleted, and after which time ``lakebed gc`` deletes it; None: not by time alone."""

    how: str
    due: datetime | None = None


def held_files(state: TableState, pins: Collection[int]) -> list[HeldFile]:
    """Return all data files that the state knows, those in use first."""
    live: dict[str, tuple[DataFile, list[EncodedRange]]] = {}
    for position, partition in enumerate(state.partitions.ids):
        keys = state.partitions.range_at(position)
        for file in state.files_of(partition):
            live.setdefault(file.id, (file, []))[1].append(keys)
    found = [
        _held_file(state, file, state.files[name], pins, tuple(iter_ranges(ranges)))
        for name, (file, ranges) in live.items()
    ]
    unused = sorted(state.files.having("dropped"), key=lambda committed: (committed.added, committed.facts.id))
    return found + [_held_file(state, committed.facts, committed, pins, ()) for committed in unused]


def _held_file(
    state: TableState, file: DataFile, committed: CommittedFile, pins: Collection[int], live: tuple[EncodedRange, ...]
) -> HeldFile:
    where = Where.IN_USE if live else Where.RETIRED if committed.retired else Where.OLDER_VERSIONS
    return HeldFile(
        file,
        where,
        committed.added,
        None if committed.dropped is None else committed.dropped - 1,
        tuple(sorted(tag for tag, version in state.tags.items() if committed.needed_at(version))),
        tuple(sorted(version for version in pins if committed.needed_at(version))),
        live,
    )


def unnamed(state: TableState, names: Iterable[str]) -> list[str]:
    """Return the listed objects of the data folder that belong to no file of the state."""
    known = {name for held in held_files(state, ()) for name in object_names(state.table, held.file)}
    return [name for name in names if name not in known]


def is_data(table: str, name: str) -> bool:
    """Return whether an object has the name of a data file, and not of its summary or of something unknown."""
    return file_of_object(table, name) is not None and name.endswith(".parquet")


# -- when -------------------------------------------------------------------------------------------------------------


def file_going(held: HeldFile, last_modified_of: Callable[[int], datetime | None], settings: Settings) -> Going:
    """Return how a data file is deleted. A truncated entry has no time: it is older than everything retained."""
    if held.where is Where.IN_USE:
        return Going("rewrite or remove the rows, or compact the file if none of them is live; then as older versions")
    kept = [f"tag {tag} is dropped" for tag in held.tags]
    kept += [f"the reader of version {version} ends" for version in held.pins]
    if kept:
        return Going(f"lakebed gc, when {' and '.join(kept)}")
    if held.where is Where.RETIRED or held.last is None:
        return Going("the next lakebed gc")
    dropped = last_modified_of(held.last + 1)
    due = None if dropped is None else dropped + timedelta(seconds=settings.history_s)
    return Going("the next lakebed gc" if due is None else "lakebed gc, after history_s", due)


def orphan_going(last_modified: datetime, settings: Settings) -> Going:
    """Return how an orphan is deleted."""
    return Going("lakebed gc, after orphan_age_s", last_modified + timedelta(seconds=settings.orphan_age_s))


def entry_going(last_modified: datetime | None, settings: Settings) -> Going:
    """Return how a log entry is deleted: by truncation behind two checkpoints, so up to a quarter late."""
    due = None if last_modified is None else last_modified + timedelta(seconds=1.25 * settings.log_retention_s)
    return Going("lakebed gc truncates the log, after log_s", due)


def contained(keys: Sequence[bytes], ranges: Sequence[EncodedRange]) -> list[bool]:
    """Return whether each key lies in one of the ranges, which are disjoint and in key order."""
    lows = [one.min for one in ranges]
    found = (bisect_right(lows, key) - 1 for key in keys)
    return [place >= 0 and ranges[place].contains(key) for place, key in zip(found, keys, strict=True)]
