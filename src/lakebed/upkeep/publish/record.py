"""What a published table has in its folder ``iceberg``, read without PyIceberg: for collectors, status and catalogs.

Publications have numbers from 1. Each commits by one create-if-absent of ``metadata/v<number>.metadata.json``, so of
two publishers one wins, and the latest publication is the one with the highest number, which a listing finds. The
manifests and deletes that it names were put before it, under ``parts``; their names begin with the number of the
publication.

Every metadata file has two properties of ours: ``lakebed.digest``, of all of its bytes, and ``lakebed.previous``, the
digest of the file before. So a file that another program put there is found, and nothing is built on it.

The end of a publication, when the setting ``publish`` is reset, is a metadata file too, without a table in it: engines
fail to read it, in place of reading rows that are old.

What is kept. Snapshots follow one another, and some of them in a row name a part. So of the parts that were written
before the first snapshot that is needed, only those are needed that this snapshot names, or one with a tag. A snapshot
of an older version, for a tag, names what one before it does.

Errors: DamagedError for metadata that Lakebed did not write. Source: docs/format.md 14; decision 0074.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakebed.errors import Code, DamagedError, Error
from lakebed.model.documents import dump, is_whole_document, load, reading
from lakebed.model.files import (
    iceberg_folder,
    metadata_folder,
    metadata_name,
    parse_metadata_name,
    parse_part_name,
    version_hint_name,
)
from lakebed.storage.retries import attempts, is_stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from lakebed.storage.contract import Storage

TABLE, NAME, VERSION = "lakebed.table", "lakebed.name", "lakebed.version"
ROWS, PREVIOUS, DIGEST, ENDED = "lakebed.rows", "lakebed.previous", "lakebed.digest", "lakebed.ended"
PUBLISHED = "lakebed.published-ms"

SNAPSHOTS_MAX = 100
"""Snapshots in the metadata beside those with tags: about 50 kB, which each publication writes."""

METADATA_KEPT = 10
"""Metadata files that are kept: a reader has loaded one as a whole when it begins."""

LIST, TAG_LIST = "list", "taglist"
"""The kinds of the parts that are manifest lists: of versions one after another, and of older ones beside them."""

READS_MAX = 5
"""Attempts to read the latest metadata file: a publisher deletes older ones meanwhile."""

_ENDING = ".metadata.json"
_BLANK = "?" * 32

_List = tuple[int, "datetime", int, str]
"""A manifest list: its publication, its last-modified time, the version of the table, its name."""


@dataclass(frozen=True)
class MetadataFile:
    """The metadata file of one publication of a table: its number, and its bytes."""

    table_id: str
    number: int
    data: bytes = field(repr=False)

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The metadata as JSON. Raises DamagedError."""
        with reading(f"the metadata of publication {self.number}", name=self.name):
            document = load(self.data)
            if not isinstance(document["properties"], dict):
                raise TypeError
            return document  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The object of the metadata file."""
        return metadata_name(self.table_id, self.number)

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties of the Iceberg table."""
        return self.document["properties"]  # type: ignore[no-any-return]

    @property
    def digest(self) -> str:
        """The digest of the metadata file."""
        return self.properties[DIGEST]

    @property
    def version(self) -> int:
        """The version of the table that is published."""
        return int(self.properties[VERSION])

    @property
    def ended(self) -> bool:
        """Whether the publication has ended: the table is not published."""
        return ENDED in self.properties

    @property
    def versions(self) -> frozenset[int]:
        """The versions of the table that snapshots stand for."""
        return frozenset(int(one["summary"][VERSION]) for one in self.document.get("snapshots", ()))


def location_of(storage: Storage, name: str) -> str:
    """Return the URI of an object, or of a folder, for other engines: those of Iceberg have no percent-encoding."""
    url = storage.object_url(name)
    return unquote(url) if url.startswith("file:") else url


def latest_metadata(storage: Storage, table_id: str, known: MetadataFile | None = None) -> MetadataFile | None:
    """Return the latest publication of a table; None if there is none. One request if that is ``known``, or two.

    Raises DamagedError for metadata that Lakebed did not write.
    """
    for _ in attempts(READS_MAX):
        number = latest_number(storage, table_id)
        if number == 0:
            return None
        if known is not None and known.number == number:
            return known
        data = storage.get(metadata_name(table_id, number))
        if data is not None:
            head = MetadataFile(table_id, number, data)
            _check_own(head)
            return head
    raise Code.PUBLICATION_CONTENDED(
        f"the metadata of table {table_id} were replaced {READS_MAX} times while they were read; try again"
    )


def latest_number(storage: Storage, table_id: str) -> int:
    """Return the number of the latest publication; 0 if there is none. One request.

    Raises DamagedError for a metadata file with a name that another writer of Iceberg chose.
    """
    numbers = [0]
    for listed in storage.list(metadata_folder(table_id)):
        number = parse_metadata_name(table_id, listed.name)
        if number is not None:
            numbers.append(number)
        elif listed.name.endswith(_ENDING):
            raise _foreign(listed.name)
    return max(numbers)


def _check_own(head: MetadataFile) -> None:
    try:
        own = is_whole_document(head.data, {"digest": head.digest}) and head.properties[TABLE] == head.table_id
    except (KeyError, DamagedError):
        own = False
    if not own:
        raise _foreign(head.name)


def _foreign(name: str) -> Error:
    return Code.PUBLICATION_FOREIGN(
        f"{name} was not written by Lakebed, or was changed after that. Other engines may only read a published table: "
        "move the object away, write its rows with Lakebed, and publish again",
        name=name,
    )


def sealed(data: bytes) -> bytes:
    """Return the metadata with their digest in place of the blank one."""
    import xxhash

    blank = dump({DIGEST: _BLANK})[1:-1]
    return data.replace(blank, dump({DIGEST: xxhash.xxh3_128_hexdigest(data)})[1:-1], 1)


def unsealed() -> dict[str, str]:
    """Return the property for the digest before :func:`sealed`."""
    return {DIGEST: _BLANK}


def end(storage: Storage, table_id: str) -> bool:
    """End the publication of a table, if it has one; return whether it did. Engines cannot read the table any more.

    Raises DamagedError, StorageError.
    """
    for _ in attempts(READS_MAX):
        head = latest_metadata(storage, table_id)
        if head is None or head.ended:
            return False
        properties = {TABLE: table_id, VERSION: str(head.version), ENDED: "true", PREVIOUS: head.digest, **unsealed()}
        if is_stored(storage, metadata_name(table_id, head.number + 1), sealed(dump({"properties": properties}))):
            return True
    raise Code.PUBLICATION_CONTENDED(f"table {table_id} is published all the time; reset publish, and try again")


# -- what is kept ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Retained:
    """What readers of a published table may need, and what there is (:func:`retained`).

    They need the files of these ``versions``. ``old`` are parts of earlier publications, and metadata files that were
    replaced long ago; of these parts, those are needed that the manifest ``lists`` name.
    """

    versions: frozenset[int] = frozenset()
    lists: tuple[str, ...] = ()
    old: tuple[str, ...] = ()


def retained(storage: Storage, table_id: str, history: timedelta) -> Retained:
    """Return what is kept for readers that began less than ``history`` ago. Requests: two listings, the clock, a read.

    These readers loaded metadata that were the latest then, or later ones. The latest of before list the snapshots that
    had been replaced less than ``history`` before; those that came later were of the newest version of the table, whose
    files are kept for as long by :mod:`lakebed.upkeep.retention`. Snapshots that are listed now are kept as well.

    Raises DamagedError for metadata that Lakebed did not write: nothing may be deleted.
    """
    listed = list(storage.list(iceberg_folder(table_id)))
    if not listed:
        return Retained()
    latest, before = latest_metadata(storage, table_id), storage.now() - history
    parts = [(part, one) for one in listed if (part := parse_part_name(table_id, one.name)) is not None]
    old = tuple(one.name for _, one in parts if one.last_modified <= before)
    if latest is None:
        return Retained(old=old)
    times = {one.name: one.last_modified for one in listed}
    numbers = {one.name: parse_metadata_name(table_id, one.name) or latest.number for one in listed}
    if latest.ended and latest.name in times and times[latest.name] <= before:
        stale = [name for name, number in numbers.items() if number < latest.number]
        return Retained(old=(*old, *stale, version_hint_name(table_id)))
    stale = [name for name, number in numbers.items() if number <= latest.number - METADATA_KEPT]
    lists = sorted((part.number, one.last_modified, part.version, one.name) for part, one in parts if part.kind == LIST)
    window = _listed_at(lists, before, history)
    first = min((number for number, *_ in window), default=0)
    named = [one["manifest-list"].rpartition("/")[2] for one in latest.document.get("snapshots", ())]
    beside = [
        (part.version, one.name)
        for part, one in parts
        if part.kind == TAG_LIST and (part.number >= first or one.name.rpartition("/")[2] in named)
    ]
    begin = [name for number, _, _, name in window if number == first]
    earlier = [name for number, _, _, name in lists if number < first and name.rpartition("/")[2] in named]
    kept = frozenset(one.name for part, one in parts if part.number >= first)
    return Retained(
        versions=latest.versions | {version for _, _, version, _ in window} | {version for version, _ in beside},
        lists=(*begin, *earlier, *(name for _, name in beside)),
        old=(*(name for name in old if name not in kept), *stale),
    )


def _listed_at(lists: Sequence[_List], before: datetime, history: timedelta) -> list[_List]:
    """Return the snapshots that the latest metadata of a time listed, at most; all later ones if there were none."""
    then = [one for one in lists if one[1] <= before]
    if not then:
        return list(lists)
    since = then[-1][1] - history
    window = then[-1:]
    for one, successor in zip(then[-2::-1], then[:0:-1], strict=True):
        if successor[1] <= since or len(window) == SNAPSHOTS_MAX:
            break
        window.append(one)
    return window
