"""Data files, references and runs as values, and the only place where object names are made and read.

A data file is immutable, sorted by row key and sort key. A reference stands for *all* rows of one file inside one
partition. Files of one job whose ranges at most touch are one run, and their references have the same run id. Pure: no
I/O.

*The minimum and maximum of each key field after the first in a data file, in a few bytes.*

The bounds of a file's whole keys say nothing of these fields unless the file has one value of the first. With these
bounds a predicate on a later field of the row key, or on a sort key field, opens only files that can match.

The stored form has, for each of these fields in order (row key, then sort key), a range ``[min, max)`` of the field's
own encoding (docs/format.md, section 9): a byte of length and the bytes of ``min``, then the same of ``max``; a ``max``
of no bytes means no end. Each is truncated to :data:`BYTES_MAX`. A truncated ``min`` is lower, and ``max`` is the least
string above all that begin with the truncated greatest value, so the range contains every value. No bytes at all: the
bounds are unknown. Pure.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.key_summaries import Summary
from lakebed.model.key_type import Content
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.schema import Field

if TYPE_CHECKING:
    from collections.abc import Iterable

BYTES_MAX = 16
"""Maximum bytes of a bound: enough for integers, dates and times. The first letters of a text distinguish most values,
and a state has millions of bounds."""


def encode_bounds(values: Iterable[tuple[Field, Content | None, Content | None]]) -> bytes:
    """Return the stored form of the least and greatest contents of some fields; None: unknown."""
    found = bytearray()
    for field, least, greatest in values:
        low = b"" if least is None else _encode_beginning(field, least)
        high = b"" if greatest is None else successor(_encode_beginning(field, greatest)) or b""
        found += bytes([len(low)]) + low + bytes([len(high)]) + high
    return bytes(found)


def decode_bounds(stored: bytes) -> tuple[EncodedRange, ...]:
    """Return the range of each field; none if all are unknown. Raises DamagedError for malformed bytes."""
    ranges: list[EncodedRange] = []
    ends: list[bytes] = []
    place = 0
    while place < len(stored):
        end = place + 1 + stored[place]
        if end > len(stored):
            raise Code.STATE_INCONSISTENT(f"the field bounds of a data file end too soon: {stored.hex()}")
        ends.append(stored[place + 1 : end])
        if len(ends) == 2:
            ranges.append(EncodedRange(ends[0], ends[1] or None))
            ends = []
        place = end
    if ends:
        raise Code.STATE_INCONSISTENT(f"the field bounds of a data file lack an end: {stored.hex()}")
    return tuple(ranges)


def _encode_beginning(field: Field, content: Content) -> bytes:
    # Only the beginning is encoded: a sort key may be of any length.
    known = content[:BYTES_MAX] if isinstance(content, bytes) and not field.width else content
    return field.key_type.encode(known)[:BYTES_MAX]


INSTANCE_NAME = "instance.json"
"""The object that marks an instance and gives its format version."""

TABLES_FOLDER = "tables"
"""The folder of all tables."""

RETRY_FOLDER = "jobs/retries"
"""The folder of requests to retry parked jobs."""

QUERIES_FOLDER = "queries"
"""The folder of submitted queries."""

HOOK_FOLDER = "hooks"
"""The folder of all hooks of an instance."""

FOLLOW_FOLDER = "follows"
"""The folder of the records of all followers of an instance."""

FOLLOWER_FOLDER = "followers"
"""The folder of the followers that services run."""

SUMMARY_BYTES_MIN = 128 * 1024
"""Minimum size of data files with a stored summary: a smaller file is itself read with one request."""

WIDE_ROW_BYTES = 16 * 1024
"""Files with at least this many bytes per row are not read by the engine, whose allocator keeps the memory."""

KEY_FILTERS = "lakebed.key_filters"
"""The key, in the key-value metadata of a data file's footer, of the location of its filters over whole keys."""

NAMES_KEPT = 1024
"""Maximum cached names of log objects: each read of a table looks for the next entry and the log start."""

VERSION_DIGITS = 20
"""Log numbers are written with leading zeros, so that names list in their order; 2**64 has 20 digits."""

_ID = r"[0-9a-z][0-9a-z-]{7,63}"
_NUMBER = re.compile(rf"[0-9]{{{VERSION_DIGITS}}}")
_SIDECAR = re.compile(rf"([0-9]{{{VERSION_DIGITS}}})-([0-9a-f]{{32}})\.arrow")
_DATA_NAME = re.compile(rf"tables/({_ID})/data/({_ID})/({_ID})\.(?:parquet|summary)")
_TABLE_NAME = re.compile(rf"tables/({_ID})/.+")
_PUBLISHED_NAME = re.compile(rf"tables/({_ID})/iceberg/.+")
_METADATA_NAME = re.compile(r"v([1-9][0-9]{0,18})\.metadata\.json")
_PART_NAME = re.compile(rf"([0-9]{{{VERSION_DIGITS}}})-([0-9]{{{VERSION_DIGITS}}})-([0-9a-z]+)-[0-9a-z-]+\.[a-z]+")
_COPY_NAME = re.compile(rf"tables/({_ID})/copies/({_ID})\.json")
_RUNS_NAME = re.compile(rf"jobs/runs/([0-9]{{8}})/({_ID})\.ndjson")
_QUERY_NAME = re.compile(rf"queries/({_ID})/(.+)")
_RETRY_NAME = re.compile(rf"jobs/retries/({_ID})\.json")
_FOLLOW_NAME = re.compile(r"follows/([a-z0-9_]{1,48})\.json", re.ASCII)
_FOLLOWER_NAME = re.compile(r"followers/([a-z0-9_]{1,48})\.json", re.ASCII)
_HOOK_NAME = re.compile(rf"hooks/({_ID})\.json")
_DELIVERED_NAME = re.compile(rf"hooks/({_ID})\.delivered\.json")
_PIN_NAME = re.compile(rf"tables/({_ID})/pins/({_ID})\.json")


class DataFile(Struct, frozen=True):
    """One sorted Parquet file, as described by its writer.

    ``last_modified_us`` is the store's own last-modified time (microseconds since 1970). The digests are XXH3-128 of
    the whole object and of its Parquet footer (metadata, length and magic: the last ``footer_bytes``). ``bounds`` are
    those of the key fields after the first. ``markers`` is the number of rows that
    are deletes or partial rows (:mod:`lakebed.model.row_kinds`).
    """

    id: str
    job: str
    rows: int
    size_bytes: int
    min_key: bytes
    max_key: bytes
    schema_version: int
    last_modified_us: int
    digest: str
    footer_bytes: int
    footer_digest: str
    bounds: bytes = b""
    markers: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1 or self.size_bytes < 1 or self.min_key > self.max_key:
            raise Code.STATE_INCONSISTENT(
                f"data file {self.id}: no rows, no bytes, or minimum key above maximum key", file=self.id
            )

    @property
    def summarised(self) -> bool:
        """Whether a summary is stored beside the file."""
        return self.size_bytes >= SUMMARY_BYTES_MIN

    def lies_in(self, keys: EncodedRange) -> bool:
        """Return whether every row's key is inside the range."""
        return keys.contains(self.min_key) and keys.contains(self.max_key)

    def reaches(self, keys: EncodedRange) -> bool:
        """Return whether the file's bounds overlap the range; it may have no row there."""
        return (keys.max is None or self.min_key < keys.max) and self.max_key >= keys.min


class NewFile(Struct, frozen=True):
    """A file that is written but not committed, as a transaction proposes it. ``run`` is the id of its run.

    ``added`` are fields of the file that the table did not have when it was written. ``file.schema_version`` is then
    one more than that of the schema to which they were added.
    """

    file: DataFile
    summary: Summary
    run: str
    added: tuple[Field, ...] = ()


class CommittedFile(Struct, frozen=True):
    """A file in the table state, by its id: its sequence span, and the versions that added and dropped its references.

    ``file`` has the facts of a file without references; the facts of others are with their references.
    """

    sequence_lo: int
    sequence_hi: int
    added: int
    dropped: int | None = None
    references: int = 0
    retired: bool = False
    file: DataFile | None = None

    @property
    def facts(self) -> DataFile:
        """The facts of a file without references. Raises DamagedError if the state lacks them."""
        if self.file is None:
            raise Code.STATE_INCONSISTENT(
                f"a file of sequence {self.sequence_lo} to {self.sequence_hi} lacks its own facts"
            )
        return self.file

    def needed_at(self, version: int) -> bool:
        """Return whether the table at that version refers to the file."""
        return self.added <= version and (self.dropped is None or version < self.dropped)


class Reference(Struct, frozen=True):
    """All rows of a file inside one partition; ``rows`` is exact or an estimate."""

    file: str
    partition: int
    rows: int
    exact: bool
    run: str


class PartitionFile(NamedTuple):
    """A reference with the facts of its file, as its partition has it in the table state.

    A tuple, because a lookup makes one for each file of its partition, and a dataclass takes five times as long.
    """

    file: DataFile
    rows: int
    exact: bool
    run: str

    def reference(self, partition: int) -> Reference:
        """Return the reference by the ids of file and partition, as transactions have it."""
        return Reference(self.file.id, partition, self.rows, self.exact, self.run)


def table_of_object(name: str) -> str | None:
    """Return the id of the table that an object belongs to; None if it belongs to none."""
    match = _TABLE_NAME.fullmatch(name)
    return match[1] if match else None


def table_prefix(table_id: str) -> str:
    """Return the folder of a table."""
    return f"tables/{table_id}"


def data_folder(table_id: str) -> str:
    """Return the folder of a table's data files, with a folder for each job."""
    return f"tables/{table_id}/data"


def data_object(table_id: str, job: str, file_id: str) -> str:
    """Return the object that a job writes a data file to."""
    return f"tables/{table_id}/data/{job}/{file_id}.parquet"


def summary_object(table_id: str, job: str, file_id: str) -> str:
    """Return the object that a job writes a data file's summary to."""
    return f"tables/{table_id}/data/{job}/{file_id}.summary"


def data_name(table_id: str, file: DataFile) -> str:
    """Return the object of a data file."""
    return data_object(table_id, file.job, file.id)


def summary_name(table_id: str, file: DataFile) -> str:
    """Return the object of a data file's summary."""
    return summary_object(table_id, file.job, file.id)


def object_names(table_id: str, file: DataFile) -> tuple[str, ...]:
    """Return all objects of a data file."""
    return (data_name(table_id, file), summary_name(table_id, file))[: 1 + file.summarised]


def file_of_object(table_id: str, name: str) -> tuple[str, str] | None:
    """Return the job and the id of the data file whose object or summary this is; None if it is not of that table."""
    match = _DATA_NAME.fullmatch(name)
    return (match[2], match[3]) if match and match[1] == table_id else None


def pin_folder(table_id: str) -> str:
    """Return the folder of a table's pins."""
    return f"tables/{table_id}/pins"


def pin_name(table_id: str, pin_id: str) -> str:
    """Return the object of one reader's pin."""
    return f"{pin_folder(table_id)}/{pin_id}.json"


def is_pin_name(table_id: str, name: str) -> bool:
    """Return whether an object is a pin of that table."""
    match = _PIN_NAME.fullmatch(name)
    return match is not None and match[1] == table_id


def runs_folder(day: str | None = None) -> str:
    """Return the folder of the records of job runs of all tables, or those of a day such as ``20260131``."""
    return "jobs/runs" if day is None else f"jobs/runs/{day}"


def runs_name(day: str, record_id: str) -> str:
    """Return one object with records of job runs."""
    return f"{runs_folder(day)}/{record_id}.ndjson"


def is_runs_name(name: str) -> bool:
    """Return whether an object has records of job runs."""
    return _RUNS_NAME.fullmatch(name) is not None


def retry_name(run: str) -> str:
    """Return the object that requests a retry of a parked job."""
    return f"{RETRY_FOLDER}/{run}.json"


def run_of_retry(name: str) -> str | None:
    """Return the id of the job run whose retry an object requests; None if it requests none."""
    match = _RETRY_NAME.fullmatch(name)
    return match[1] if match else None


def query_object(query: str, name: str) -> str:
    """Return an object, or a folder, of a submitted query."""
    return f"{QUERIES_FOLDER}/{query}/{name}"


def query_of(name: str) -> tuple[str, str] | None:
    """Return the query of an object, and the object's name in the folder of the query; None if it is of no query."""
    match = _QUERY_NAME.fullmatch(name)
    return (match[1], match[2]) if match else None


def copy_folder(table_id: str) -> str:
    """Return the folder of the records of copies of a table's rows."""
    return f"tables/{table_id}/copies"


def copy_name(table_id: str, copy_id: str) -> str:
    """Return the object of one record of a copy."""
    return f"{copy_folder(table_id)}/{copy_id}.json"


def is_copy_name(table_id: str, name: str) -> bool:
    """Return whether an object is a record of a copy of rows of that table."""
    match = _COPY_NAME.fullmatch(name)
    return match is not None and match[1] == table_id


def iceberg_folder(table_id: str) -> str:
    """Return the folder of what a table is published with: the location of the Iceberg table."""
    return f"tables/{table_id}/iceberg"


def metadata_folder(table_id: str) -> str:
    """Return the folder of the metadata files of a published table."""
    return f"{iceberg_folder(table_id)}/metadata"


def metadata_name(table_id: str, number: int) -> str:
    """Return the metadata file that a publication of this number wrote; numbers count from 1."""
    return f"{metadata_folder(table_id)}/v{number}.metadata.json"


def parse_metadata_name(table_id: str, name: str) -> int | None:
    """Return the number of the publication that wrote a metadata file; None if the object is not one."""
    match = _METADATA_NAME.fullmatch(name.removeprefix(f"{metadata_folder(table_id)}/"))
    return int(match[1]) if match and metadata_name(table_id, int(match[1])) == name else None


def version_hint_name(table_id: str) -> str:
    """Return the object with the number of about the latest metadata file."""
    return f"{metadata_folder(table_id)}/version-hint.text"


class PublishedPart(NamedTuple):
    """Which publication wrote a manifest list, a manifest or a file of deletes, of which version of the table."""

    number: int
    version: int
    kind: str


def parts_folder(table_id: str) -> str:
    """Return the folder of the manifest lists, manifests and deletes of a published table."""
    return f"{iceberg_folder(table_id)}/parts"


def part_name(table_id: str, part: PublishedPart, token: str, ending: str) -> str:
    """Return an object that a publication writes; names list in the order of publications."""
    digits = VERSION_DIGITS
    name = f"{part.number:0{digits}d}-{part.version:0{digits}d}-{part.kind}-{token}.{ending}"
    return f"{parts_folder(table_id)}/{name}"


def parse_part_name(table_id: str, name: str) -> PublishedPart | None:
    """Return which part of a published table an object is; None if it is none."""
    prefix = f"{parts_folder(table_id)}/"
    match = _PART_NAME.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    return PublishedPart(int(match[1]), int(match[2]), match[3]) if match else None


def is_published_name(table_id: str, name: str) -> bool:
    """Return whether an object is one of those that a table is published with."""
    match = _PUBLISHED_NAME.fullmatch(name)
    return match is not None and match[1] == table_id


def hook_name(hook_id: str) -> str:
    """Return the object of one hook."""
    return f"{HOOK_FOLDER}/{hook_id}.json"


def delivered_name(hook_id: str) -> str:
    """Return the object that records the deliveries to a hook."""
    return f"{HOOK_FOLDER}/{hook_id}.delivered.json"


def hook_of_name(name: str) -> str | None:
    """Return the id of the hook stored in an object; None if it is not a hook."""
    match = _HOOK_NAME.fullmatch(name)
    return match[1] if match else None


def hook_of_delivered(name: str) -> str | None:
    """Return the id of the hook whose deliveries an object records; None if it is not such a record."""
    match = _DELIVERED_NAME.fullmatch(name)
    return match[1] if match else None


def follow_name(name: str) -> str:
    """Return the object of the record of a follower."""
    return f"{FOLLOW_FOLDER}/{name}.json"


def follow_of_name(name: str) -> str | None:
    """Return the follower whose record an object is; None if it is none."""
    match = _FOLLOW_NAME.fullmatch(name)
    return match[1] if match else None


def follower_name(name: str) -> str:
    """Return the object of a follower that services run."""
    return f"{FOLLOWER_FOLDER}/{name}.json"


def follower_of_name(name: str) -> str | None:
    """Return the follower that an object declares; None if it is none."""
    match = _FOLLOWER_NAME.fullmatch(name)
    return match[1] if match else None


@lru_cache(maxsize=NAMES_KEPT)
def entry_name(prefix: str, version: int) -> str:
    """Return the object of a log entry; ``prefix`` is ``catalog`` or a table's."""
    return f"{entry_folder(prefix)}/{version:0{VERSION_DIGITS}d}.ndjson"


def entry_folder(prefix: str) -> str:
    """Return the folder of a log's entries."""
    return f"{prefix}/log"


def parse_entry_name(prefix: str, name: str) -> int | None:
    """Return the version of a log entry's object; None if the object is not one."""
    text = name.removeprefix(f"{prefix}/log/").removesuffix(".ndjson")
    return int(text) if _NUMBER.fullmatch(text) and entry_name(prefix, int(text)) == name else None


def log_of_entry(name: str) -> str | None:
    """Return the prefix of the log to which an entry's object belongs; None if it is not an entry."""
    prefix, found, _ = name.rpartition("/log/")
    return prefix if found and parse_entry_name(prefix, name) is not None else None


@lru_cache(maxsize=NAMES_KEPT)
def log_start_name(prefix: str) -> str:
    """Return the object of a log's start, in the folder of the entries."""
    return f"{prefix}/log/log-start.ndjson"


def sidecar_folder(prefix: str) -> str:
    """Return the folder of the sidecars of a log's entries."""
    return f"{prefix}/log/sidecars"


def sidecar_name(prefix: str, version: int, digest: str) -> str:
    """Return the object of an entry's sidecar with these bytes."""
    return f"{sidecar_folder(prefix)}/{version:0{VERSION_DIGITS}d}-{digest}.arrow"


def parse_sidecar_name(prefix: str, name: str) -> tuple[int, str] | None:
    """Return version and digest of a sidecar's name; None if it is not one."""
    match = _SIDECAR.fullmatch(name.removeprefix(f"{sidecar_folder(prefix)}/"))
    return (int(match[1]), match[2]) if match and sidecar_name(prefix, int(match[1]), match[2]) == name else None


def checkpoints_folder(prefix: str) -> str:
    """Return the folder of all checkpoints of a log."""
    return f"{prefix}/checkpoints"


def checkpoint_folder(prefix: str, version: int | None = None) -> str:
    """Return the folder of a log's latest checkpoint, or of the retained checkpoint of that version."""
    return f"{checkpoints_folder(prefix)}/{'latest' if version is None else f'{version:0{VERSION_DIGITS}d}'}"


def parse_retained_version(prefix: str, name: str) -> int | None:
    """Return the version of the retained checkpoint that an object belongs to; None if to none."""
    text = name.removeprefix(f"{checkpoints_folder(prefix)}/").partition("/")[0]
    return int(text) if _NUMBER.fullmatch(text) and name.startswith(checkpoint_folder(prefix, int(text))) else None


def checkpoint_name(prefix: str, version: int | None = None) -> str:
    """Return the manifest of a log's latest checkpoint, or of the retained checkpoint of that version."""
    return f"{checkpoint_folder(prefix, version)}/manifest.ndjson"


def segment_folder(prefix: str, version: int | None = None) -> str:
    """Return the folder of the segments of that checkpoint."""
    return f"{checkpoint_folder(prefix, version)}/segments"


def segment_name(prefix: str, token: str, version: int | None = None) -> str:
    """Return one segment of that checkpoint."""
    return f"{segment_folder(prefix, version)}/{token}.arrow"
