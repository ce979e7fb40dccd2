"""Copies an instance while it is used: a backup that opens like any instance, anywhere; and the way back.

The copy has every table as it was at some moment between the start and the end; tables are consistent each, not with
one another. Run again with the same target, it copies what is new: objects never change, but for a few small ones. What
gives access and was deleted in the original, such as a revoked token, is deleted in the copy.
Nothing else may write to the copy, whose logs would no longer be those of the original. Garbage collection is paused
while the copy is made, and so it is in the copy, until :func:`restore` ends that in what it made.

Why it is consistent: an object is copied before those that refer to it could have been made, in reverse. Checkpoints
come first, so the log, copied later, goes at least as far; the catalog's log before those of tables, so that each table
that it names has one; sidecars and data last, so that each that an entry names was there. A collection that had begun
may retain a checkpoint meanwhile, and then truncate the log up to it: that checkpoint is copied last, unless it is of a
version that the copied log does not have.

A log in a database (``log_url``) is backed up with the database's own tools, before the data.

Core types: :class:`InstanceCopy`, :class:`BackupReport`. Errors: UsageError for a log elsewhere, or a target with other
objects; DamagedError for a copy that is not whole; those of both stores.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import Code, NotFoundError, UnsupportedFormatError
from lakebed.model.files import INSTANCE_NAME
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance

REPLACED = re.compile(
    r".*/(manifest\.ndjson|log-start[^/]*|version-hint\.text|attempt-[^/]*)|jobs/.*|follow(s|ers)/.*"
    r"|hooks/.*\.delivered\.json"
)
"""Objects that change; all others are written once (docs/format.md, section 1)."""

REVOKED = re.compile(r"access/.*|followers/.*|hooks/.*")
"""Objects that a copy loses with the original: a token that was revoked opens nothing in a restored instance."""

PASSED_OVER = re.compile(r".*/pins/.*")
"""A pin protects a reader of the original."""

ENTRY = re.compile(r"(.*)/log/(\d{20})\.ndjson")

CHECKPOINT = re.compile(r"(.*)/checkpoints/(latest|\d{20})/.*")
"""An object of the newest checkpoint, or of one that is retained, by its version."""


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table of a copy, and the version that the copy has."""

    table: str
    version: int


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied, and the tables of the copy, each of which was verified."""

    url: str
    objects: int
    tables: tuple[CopiedTable, ...]

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        return f"{count_text(self.objects, 'object')} copied; {count_text(len(self.tables), 'table')} verified"


def backup(lake: Instance, target: Storage) -> int:
    """Copy what the target does not have; returns the number of objects that were copied."""
    if lake.log_url is not None:
        raise Code.ARGUMENT_INVALID(
            f"the log is in {lake.log_url}: back that up first by the tools of the database, then copy the data with "
            "any tool for files or buckets"
        )
    _check_places(lake.storage, target)
    with _collections_paused(lake):
        return InstanceCopy(lake.storage, target).run()


def _check_places(source: Storage, target: Storage) -> None:
    """Raise UsageError for a target that is a part of the source or the reverse, or is another instance."""
    here, there = (f"{one.url.rstrip('/')}/" for one in (source, target))
    if here.startswith(there) or there.startswith(here):
        raise Code.ARGUMENT_INVALID(
            f"{target.url} and {source.url} are one place, or one is inside the other: copy to another place"
        )
    found = target.get(INSTANCE_NAME)
    if found is not None and found != source.get(INSTANCE_NAME):
        raise Code.FOLDER_NOT_EMPTY(
            f"{target.url} is another instance, or a copy of one: copy to another place", folder=target.url
        )


@contextmanager
def _collections_paused(lake: Instance) -> Iterator[None]:
    paused = [name for name in lake.tables() if "gc" not in lake.paused(name)]
    for name in paused:
        lake.pause(name, "gc")
    try:
        yield
    finally:
        for name in paused:
            with suppress(NotFoundError):
                lake.resume(name, "gc")


def restore(source: Storage, target: Storage) -> int:
    """Copy a backup to an empty place, or go on with that; returns the number of objects that were copied."""
    _check_places(source, target)
    known = {found.name for found in source.list("")}
    other = next((found.name for found in target.list("") if found.name not in known), None)
    if other is not None:
        raise Code.FOLDER_NOT_EMPTY(
            f"{target.url} has objects that the backup does not have, such as {other}: restore into an empty place",
            folder=target.url,
        )
    return InstanceCopy(source, target).run()


def verified(copy: Instance) -> tuple[CopiedTable, ...]:
    """Return the tables of a copy.

    Raises DamagedError for one whose log or files are not whole, UnsupportedFormatError for one of a later Lakebed.
    """
    found = []
    for name in copy.tables():
        table = copy.table(name)
        report = table.verify(files=True)
        for finding in report.findings:
            if finding.kind == UnsupportedFormatError.kind:
                raise Code.FORMAT_TOO_NEW(
                    f"the copy at {copy.url} has every object, but table {name} could not be verified: {finding.what}",
                    table=name,
                )
        if not report.sound:
            raise Code.TABLE_DAMAGED(
                f"the copy at {copy.url} is not whole: table {name}: {report.findings[0].what}; has something else "
                "written there? Copy to an empty place",
                table=name,
            )
        found.append(CopiedTable(name, table.version))
    return tuple(found)


class InstanceCopy:
    """A copy under way."""

    def __init__(self, source: Storage, target: Storage) -> None:
        self._source = source
        self._target = target
        self._there = {found.name for found in target.list("")}
        self._done: set[str] = set()
        self._last: dict[str, int] = {}
        self._logs_are_copied = False
        self._count = 0

    def run(self) -> int:
        """All steps, in their order."""
        checkpoints = sorted(self._names("", "/checkpoints/"))
        # A manifest names segments that were there before it.
        self._copy([name for name in checkpoints if name.endswith("manifest.ndjson")])
        self._copy(self._names("", "/checkpoints/"))
        self._copy_logs("catalog")
        self._copy_logs("tables")
        self._logs_are_copied = True
        names = self._names("", "")
        self._copy(names)
        self._target.delete(filter(REVOKED.fullmatch, self._there.difference(names)))
        return self._count

    def _names(self, folder: str, part: str) -> list[str]:
        return [found.name for found in self._source.list(folder) if part in found.name]

    def _copy_logs(self, folder: str) -> None:
        names = entries_in_order(self._names(folder, "/log/"))
        self._last |= {found[1]: int(found[2]) for found in map(ENTRY.fullmatch, names) if found}
        self._copy(names)

    def _is_late(self, name: str) -> bool:
        """Whether an object is of a version that the copied log may not have."""
        if found := CHECKPOINT.fullmatch(name):
            return found[2] == "latest" or int(found[2]) > self._last.get(found[1], 0)
        return ENTRY.fullmatch(name) is not None

    def _copy(self, names: Iterable[str]) -> None:
        for name in names:
            late = self._logs_are_copied and self._is_late(name)
            if name in self._done or late or PASSED_OVER.fullmatch(name):
                continue
            self._done.add(name)
            if name in self._there and not REPLACED.fullmatch(name):
                continue
            self._copy_one(name)
            self._count += 1

    def _copy_one(self, name: str) -> None:
        if REPLACED.fullmatch(name):
            data = self._source.get(name)
            if data is not None:
                self._target.replace(name, data)
            return
        # A collection that had begun may delete an object after it was listed: nothing in the copy needs it.
        with (
            suppress(NotFoundError),
            self._source.fetch(name) as path,
            tempfile.TemporaryDirectory() as folder,
        ):
            # The target may move what it is given, and a local source gives the object itself.
            self._target.send(name, Path(shutil.copyfile(path, Path(folder) / "object")))


def entries_in_order(names: Iterable[str]) -> list[str]:
    """The names of a log folder in order, up to the first gap: a listing is not of one moment."""
    kept: list[str] = []
    last: dict[str, int] = {}
    for name in sorted(names):
        if found := ENTRY.fullmatch(name):
            log, version = found[1], int(found[2])
            if last.get(log, version - 1) != version - 1:
                continue
            last[log] = version
        kept.append(name)
    return kept
