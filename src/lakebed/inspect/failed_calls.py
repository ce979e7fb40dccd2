"""Records of failed calls: which call, at which version of the table, and why, stored beside the table's log.

A record is an object of its own, written once, so that it neither changes the table's version nor waits for its log.
The newest are kept, in the order of their ids. Recording is best effort and takes a few requests; it never raises,
because the original error must reach the caller.

Errors of reading: StorageError; DamagedError for a record that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Error
from lakebed.log.entry import FORMAT, parse_header
from lakebed.model.documents import dump, reading
from lakebed.model.files import failure_folder, failure_name, is_failure_name
from lakebed.storage.client_errors import scrubbed
from lakebed.version import this_writer

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

FAILURES_MAX = 256
"""Failures of a table that are kept, the newest: some 200 KB."""

REASON_CHARS_MAX = 500

_SECRET_OPTIONS = ("key", "secret", "token", "password", "credential", "sas", "signature")


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed. ``time`` is the store's; ``version`` is that of the table when the call began.

    ``call`` is the method of the pipeline, ``job`` its job id if it was given one, ``error`` the kind of the error.
    """

    time: datetime
    version: int
    call: str
    job: str | None
    error: str
    reason: str
    writer: str


SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("call", pa.string(), nullable=False),
        pa.field("job", pa.string()),
        pa.field("error", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("writer", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A running call: the facts of a failure that are known before it."""

    table: str
    call: str
    job: str | None
    version: int


def record_failure(storage: Storage, attempt: Attempt, error: BaseException) -> None:
    """Record the failure, and delete the oldest records beyond FAILURES_MAX. Best effort; never raises."""
    with suppress(Exception):
        document = {
            "format": FORMAT,
            "features": [],
            **asdict(attempt),
            "job": None if attempt.job is None else _utf8(attempt.job),
            "error": error.kind if isinstance(error, Error) else type(error).__name__,
            "reason": _reason(error, getattr(getattr(storage, "clients", None), "options", {})),
            "writer": this_writer(),
        }
        storage.create(failure_name(attempt.table, clock.new_id()), dump(document) + b"\n")
        storage.delete(_names(storage, attempt.table)[FAILURES_MAX:])


def read_failures(storage: Storage, table_id: str) -> Iterator[Failure]:
    """The recorded failures, newest first, each read when it is taken from the iterator."""
    last_modified_times = {found.name: found.last_modified for found in storage.list(failure_folder(table_id))}
    for name in _newest_first(table_id, last_modified_times):
        data = storage.get(name)
        if data is None:
            # Deleted since the listing, because newer ones were recorded.
            continue
        with reading(f"{storage.object_url(name)} is no record of a failure", name=name):
            document = parse_header(data, name)
            job = document["job"]
            texts = [str(document[text]) for text in ("error", "reason", "writer")]
            version = int(document["version"])
            yield Failure(
                last_modified_times[name], version, str(document["call"]), None if job is None else str(job), *texts
            )


def failures_table(failures: Iterable[Failure]) -> pa.Table:
    """The failures as Arrow."""
    return pa.Table.from_pylist([asdict(failure) for failure in failures], schema=SCHEMA)


def _names(storage: Storage, table_id: str) -> list[str]:
    return _newest_first(table_id, [found.name for found in storage.list(failure_folder(table_id))])


def _newest_first(table_id: str, names: Iterable[str]) -> list[str]:
    # Ids begin with the time of their creation.
    return sorted((name for name in names if is_failure_name(table_id, name)), reverse=True)


def _reason(error: BaseException, options: Mapping[str, str]) -> str:
    text = scrubbed(error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}")
    for name, value in options.items():
        if value and any(word in name.lower() for word in _SECRET_OPTIONS):
            text = text.replace(value, "...")
    return _utf8(text)[:REASON_CHARS_MAX]


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
