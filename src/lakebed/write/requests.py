"""Records files to be ingested (requests), and reports their states.

A request is for one file: the batcher combines them, and a file that cannot be read does not delay others. The id of a
request is made of the file's URL, size and version, so that a folder that is submitted repeatedly, from anywhere, has
each of its files recorded once; a file that was overwritten is another file. ``again=True`` submits a file once more.

Ids are kept for ``log_s`` after the requests were carried out. It is unknown whether a file from before the
request watermark was ingested, so a file that existed then is left out unless ``again`` is given. A file that is left
out is counted, and the command line fails. The submission has
the watermark that this was decided by, and is refused if the watermark has risen meanwhile.

Core types: :class:`SubmitReport`, :class:`WithdrawReport`, :class:`Standing`.

Errors: NotFoundError and UsageError for files and ids, RejectedError for too many open requests; those of the log.

Source: docs/decisions/0020.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, NotRetainedError
from lakebed.log.last_modified_times import EPOCH, to_us
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model.checks import check_flag, shown
from lakebed.model.html_tables import FactsView
from lakebed.model.state.table_state import IngestRequest
from lakebed.model.state.transactions import RejectRequest, SubmitRequests
from lakebed.model.state.transactions.ingest import OPEN_REQUESTS_MAX
from lakebed.storage import telemetry
from lakebed.write.sources import check_parquet, find_files, identity, modified_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.log.log import Log
    from lakebed.model.state.table_state import Source, TableState
    from lakebed.model.state.transactions import Proposal, Transaction
    from lakebed.storage.contract import Storage

    TableLog = Log[TableState, Proposal, Transaction]

BATCH_REQUESTS = 1_000
"""Requests in one entry: some 300 KB of it."""

WITHDRAWN = "withdrawn"
"""The recorded reason of a request that was withdrawn."""

WITHDRAW_THREADS = 64
"""Withdrawals that are committed at once, in few entries."""

CLOCKS_APART = timedelta(hours=1)
"""How far the clock of a source's store may be from the clock of the log's store."""


class Standing(StrEnum):
    """The state of a file that was submitted."""

    SUBMITTED = "submitted"
    """Recorded by this submission."""

    OPEN = "open"
    """Recorded before, and not ingested yet."""

    INGESTED = "ingested"
    """Its rows are in the table."""

    REJECTED = "rejected"
    """The request was rejected."""

    OLD = "old"
    """Not submitted: it may have been ingested so long ago that its id is no longer kept."""


@dataclass(frozen=True, slots=True)
class SubmittedFile:
    """One file of a submission. ``version`` is that of its request, or of the add that carried it out."""

    url: str
    size_bytes: int
    request: str
    standing: Standing
    version: int | None


@dataclass(frozen=True, slots=True)
class SubmitReport(FactsView):
    """The result of a submission; files are in order of name. ``version`` is that of its last commit, None if none."""

    table: str
    version: int | None
    files: tuple[SubmittedFile, ...]

    def count(self, standing: Standing) -> int:
        """Return how many files are of that standing."""
        return sum(file.standing is standing for file in self.files)


def submit(  # noqa: PLR0913 - a table, files, and how they are recorded
    log: TableLog,
    name: str,
    files: str | Path | Sequence[str | Path],
    *,
    again: bool,
    home: Storage,
    batch_requests: int = BATCH_REQUESTS,
    open_requests_max: int = OPEN_REQUESTS_MAX,
) -> SubmitReport:
    """Record the files that are not recorded yet, ``batch_requests`` in a commit, or none if more than
    ``open_requests_max`` were then open; see :meth:`lakebed.table.table.Table.submit`.
    """
    check_flag("again", again)
    found = find_files(files, home)
    # After the files were found: a file that was ingested before is in this state or a later one.
    state = log.follow()
    token = clock.random_token() if again else ""
    requests = [IngestRequest.new(request_id(file, token), (file,), state.version) for file in found]
    known = {request.id: _known(request, state) for request in requests}
    remembered = None if again else _remembered(log, state)
    for request in requests:
        file = request.files[0]
        if known[request.id] is None and remembered and modified_ns(file) < _oldest_ns(file, remembered, log):
            known[request.id] = _file(request, Standing.OLD, None)
    if left_out := sum(one is not None and one.standing is Standing.OLD for one in known.values()):
        telemetry.measure("submitted_files_left_out_total", left_out, table=state.table)
    new = [request for request in requests if known[request.id] is None]
    _check_room(state, len(new), name, open_requests_max)
    # Files that are recorded were checked when they were submitted.
    check_parquet([request.files[0] for request in new], home)
    version = None
    for start in range(0, len(new), batch_requests):
        proposal = SubmitRequests(tuple(new[start : start + batch_requests]), state.request_watermark)
        version = version_of(log.commit(proposal), f"table {name}")
    after = log.head.state
    return SubmitReport(name, version, tuple(known[r.id] or _submitted(r, after) for r in requests))


@dataclass(frozen=True, slots=True)
class WithdrawReport(FactsView):
    """The result of a withdrawal: the ids of the requests that are withdrawn as of ``version`` (None if none is).

    The requests in ``late`` were ingested or rejected meanwhile.
    """

    table: str
    version: int | None
    withdrawn: tuple[str, ...]
    late: tuple[str, ...]


def withdraw(log: TableLog, name: str, requests: Sequence[str]) -> WithdrawReport:
    """Withdraw open requests; see :meth:`lakebed.table.table.Table.withdraw`."""
    state = log.follow()
    ids = _open_ids(state, requests, name)
    # Proposals that wait at the same time go into one entry.
    with ThreadPoolExecutor(WITHDRAW_THREADS) as pool:
        outcomes = list(pool.map(lambda id_: log.commit(RejectRequest(id_, WITHDRAWN)), ids))
    late = {id_ for id_, outcome in zip(ids, outcomes, strict=True) if isinstance(outcome, NotCommitted)}
    versions = [version_of(outcome, f"table {name}") for outcome in outcomes if not isinstance(outcome, NotCommitted)]
    withdrawn = tuple(id_ for id_ in ids if id_ not in late)
    return WithdrawReport(name, max(versions, default=None), withdrawn, tuple(sorted(late)))


def _open_ids(state: TableState, requests: Sequence[str], name: str) -> list[str]:
    """Return the ids of open requests that are given by id or URL."""
    if not requests:
        raise Code.ARGUMENT_MISSING("no request was given: name ids or URLs, as `lakebed requests list` shows them")
    ids: dict[str, None] = {}
    by_url: dict[str, list[str]] = {}
    for request in state.open_requests.values():
        for file in request.files:
            by_url.setdefault(file.url, []).append(request.id)
    for text in requests:
        if not isinstance(text, str):
            raise Code.ARGUMENT_INVALID(f"not the id or URL of a request: {shown(text)}")
        found = [text] if text in state.open_requests else by_url.get(text)
        if found is None:
            raise Code.REQUEST_NOT_FOUND(
                f"table {name} has no open request {text!r}; nothing was withdrawn", request=text
            )
        ids |= dict.fromkeys(found)
    return list(ids)


def request_id(file: Source, token: str = "") -> str:
    """Return the request key of a file; a ``token`` makes another one, for a file that is submitted again."""
    text = f"{file.url}\n{file.size_bytes}\n{identity(file.version)}\n{token}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("url", pa.string(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC")),
        pa.field("failures", pa.int64(), nullable=False),
        pa.field("reason", pa.string()),
    ]
)


def requests_table(state: TableState, last_modified_of: Callable[[int], datetime]) -> pa.Table:
    """Return a row for each request, open ones first, oldest first: its state, since when, and why it failed last."""
    held = sorted(state.open_requests.values(), key=lambda request: (request.submitted, request.files[0].url))
    last_modified_times = {
        version: last_modified_of(version) for version in {r.rejected or r.submitted for r in (*held, *state.rejected)}
    }
    rows = []
    for request in (*held, *state.rejected):
        version = request.rejected or request.submitted
        rows.append(
            {
                "id": request.id,
                "state": str(Standing.REJECTED if request.rejected else Standing.OPEN),
                "url": request.files[0].url,
                "files": len(request.files),
                "size_bytes": request.size_bytes,
                "version": version,
                # The entry was truncated, and its time is unknown.
                "time": None if last_modified_times[version] == EPOCH else last_modified_times[version],
                "failures": request.failures,
                "reason": request.reason or None,
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


# -- within -----------------------------------------------------------------------------------------------------


def _file(request: IngestRequest, standing: Standing, version: int | None) -> SubmittedFile:
    (file,) = request.files
    return SubmittedFile(file.url, file.size_bytes, request.id, standing, version)


def _known(request: IngestRequest, state: TableState) -> SubmittedFile | None:
    """Return the recorded state of the request; None if it may be submitted."""
    if (held := state.open_requests.get(request.id)) is not None:
        return _file(request, Standing.OPEN, held.submitted)
    if (version := state.answered(request.id)) is not None:
        return _file(request, Standing.INGESTED, version)
    return None


def _submitted(request: IngestRequest, after: TableState) -> SubmittedFile:
    """Return the recorded state of a request that was just submitted; it may be ingested or rejected by now."""
    known = _known(request, after)
    if known is not None and known.standing is Standing.INGESTED:
        return known
    return _file(request, Standing.SUBMITTED, None if known is None else known.version)


def _remembered(log: TableLog, state: TableState) -> datetime | None:
    """Return the time of the log from which on the ids of all ingested files are kept; None: from the beginning."""
    if not state.request_watermark:
        return None
    # Requests whose ids are purged were submitted before that entry, and their files found before.
    try:
        return log.entry_last_modified(state.request_watermark)
    except NotRetainedError:
        return log.entry_last_modified(log.log_start() + 1)


def _oldest_ns(file: Source, remembered: datetime, log: TableLog) -> int:
    """Return the last-modified time (ns since 1970) below which a file may have been ingested and forgotten.

    Files of the device of the log have its clock. For others the clocks may differ, so a file counts as old for a
    while after that time: with a log_s of less than that, for ever.
    """
    apart = timedelta() if _same_device(file.url, log) else CLOCKS_APART
    return to_us(remembered + apart) * 1000


def _same_device(url: str, log: TableLog) -> bool:
    """Return whether a file lies on the local disk of the log's entries, whose clock sets the times of both."""
    folder = log.backend.folder
    if folder is None:
        return False
    path = Path(url2pathname(urlsplit(url).path) if "://" in url else url)
    try:
        return path.stat().st_dev == folder.stat().st_dev
    except (OSError, ValueError):
        return False


def _check_room(state: TableState, count: int, name: str, open_max: int) -> None:
    held = len(state.open_requests)
    if held + count > open_max:
        raise Code.LIMIT_REACHED(
            f"table {name}: {held:,} requests are open, and {count:,} more would exceed the limit of "
            f"{open_max:,}; ingest first, or submit fewer files at a time. Nothing was submitted",
            requests_open=held,
        )
