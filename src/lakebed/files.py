"""Data files, references and runs as values, and the only place where object names are made and read.

A data file is immutable, sorted by row key and sort key. A reference stands for *all* rows of one file inside one
leaf; files whose ranges at most touch and that came out of one job are one run, and their references carry one run
id. Pure: no I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lakebed.errors import DamagedError
from lakebed.keys import EncodedRange

if TYPE_CHECKING:
    from lakebed.summaries import Summary

NUMBER_DIGITS = 20
"""Log numbers are written with leading zeros, so that names list in their order; 2**64 has 20 digits."""

_ID = r"[0-9a-z][0-9a-z-]{7,63}"
_NUMBER = re.compile(rf"[0-9]{{{NUMBER_DIGITS}}}")
_DATA_NAME = re.compile(rf"tables/({_ID})/data/({_ID})/({_ID})\.parquet")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One sorted Parquet file as its writer knows it.

    ``stamp_us`` is the store's own last-modified stamp (microseconds since 1970), the digests are XXH3-128 of the
    whole object and of its Parquet footer (metadata, length and magic: the last ``footer_bytes``).
    """

    id: str
    job: str
    rows: int
    size_bytes: int
    min_key: bytes
    max_key: bytes
    schema_version: int
    stamp_us: int
    digest: str
    footer_bytes: int
    footer_digest: str

    def __post_init__(self) -> None:
        if self.rows < 1 or self.size_bytes < 1 or self.min_key > self.max_key:
            raise DamagedError(f"data file {self.id}: no rows, no bytes, or keys upside down", file=self.id)

    def lies_in(self, keys: EncodedRange) -> bool:
        """Whether every row's key is inside the range."""
        return keys.contains(self.min_key) and keys.contains(self.max_key)

    def reaches(self, keys: EncodedRange) -> bool:
        """Whether the file's bounds share a key with the range; no row need be there."""
        return (keys.max is None or self.min_key < keys.max) and self.max_key >= keys.min


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is written and not committed: what a transaction offers. ``run`` names the run it is part of."""

    file: DataFile
    summary: Summary
    run: str


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """What the table state knows of a file by its id: its place in the order of arrival, when references came and went.

    ``file`` has the facts of a file that no leaf refers to any more; those of all others are with the leaves.
    """

    sequence_lo: int
    sequence_hi: int
    added: int
    dropped: int | None = None
    references: int = 0
    dead: bool = False
    file: DataFile | None = None

    def needed_at(self, number: int) -> bool:
        """Whether the table at that number refers to the file."""
        return self.added <= number and (self.dropped is None or number < self.dropped)


@dataclass(frozen=True, slots=True)
class Reference:
    """All rows of a file inside one leaf; ``rows`` is exact or an estimate."""

    file: str
    leaf: int
    rows: int
    exact: bool
    run: str


class LeafFile(NamedTuple):
    """A reference as its leaf holds it in the table state: with the facts of the file, so the leaf answers alone.

    A tuple, because a lookup makes as many as its leaf has files, and a dataclass takes five times as long.
    """

    file: DataFile
    rows: int
    exact: bool
    run: str

    def reference(self, leaf: int) -> Reference:
        """The same as transactions have it, by names."""
        return Reference(self.file.id, leaf, self.rows, self.exact, self.run)


def instance_name() -> str:
    """The object that marks an instance and gives its format version."""
    return "instance.json"


def table_prefix(table_id: str) -> str:
    """Where everything of a table lies."""
    return f"tables/{table_id}"


def data_folder(table_id: str) -> str:
    """Where the objects of a table's data files lie, a folder a job."""
    return f"tables/{table_id}/data"


def data_object(table_id: str, job: str, file_id: str) -> str:
    """The object that a job writes a data file to."""
    return f"tables/{table_id}/data/{job}/{file_id}.parquet"


def summary_object(table_id: str, job: str, file_id: str) -> str:
    """The object that a job writes a data file's summary to."""
    return f"tables/{table_id}/data/{job}/{file_id}.summary"


def data_name(table_id: str, file: DataFile) -> str:
    """The object of a data file."""
    return data_object(table_id, file.job, file.id)


def summary_name(table_id: str, file: DataFile) -> str:
    """The object of a data file's summary."""
    return summary_object(table_id, file.job, file.id)


def parse_data_name(name: str) -> tuple[str, str, str] | None:
    """Table id, job id and file id of a data file's name; None if it is not one."""
    match = _DATA_NAME.fullmatch(name)
    return (match[1], match[2], match[3]) if match else None


def entry_name(prefix: str, number: int) -> str:
    """The object of a log entry; ``prefix`` is ``catalog`` or a table's."""
    return f"{entry_folder(prefix)}/{number:0{NUMBER_DIGITS}d}.ndjson"


def entry_folder(prefix: str) -> str:
    """Where the objects of a log's entries lie."""
    return f"{prefix}/log"


def parse_entry_name(prefix: str, name: str) -> int | None:
    """The number of a log entry's object; None if the object is not one."""
    text = name.removeprefix(f"{prefix}/log/").removesuffix(".ndjson")
    return int(text) if _NUMBER.fullmatch(text) and entry_name(prefix, int(text)) == name else None


def snapshot_name(prefix: str) -> str:
    """The manifest of a log's newest snapshot."""
    return f"{prefix}/snapshots/latest.ndjson"


def part_folder(prefix: str) -> str:
    """Where the parts of a log's snapshots lie."""
    return f"{prefix}/snapshots/parts"


def part_name(prefix: str, token: str) -> str:
    """One part of a snapshot."""
    return f"{part_folder(prefix)}/{token}.arrow"
