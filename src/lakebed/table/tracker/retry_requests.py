"""Requests to retry parked jobs, as objects that every service of an instance finds.

``lakebed jobs retry ID`` puts one. A service lists them at the beginning of a round, retries the jobs that it parked
under these ids, and deletes the requests. A request for a job that another service parked is left to that service. If
that service has ended, the request has no effect, since other services plan due work again, and is deleted with old
records of jobs (:func:`lakebed.table.tracker.runs.trim_records`).

Errors: StorageError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.files import RETRY_FOLDER, retry_name, run_of_retry
from lakebed.model.stored_documents import encode_document
from lakebed.model.version import this_writer
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.storage.contract import Storage


def request_retry(storage: Storage, run: str) -> bool:
    """Request a retry of a parked job; False if it was requested already. Raises UsageError for an invalid id."""
    if run_of_retry(retry_name(run)) is None:
        raise Code.ARGUMENT_INVALID(f"not the id of a job run: {shown(run)}; `lakebed jobs` lists them")
    data = encode_document({"run": run, "time": clock.now().isoformat(), "writer": this_writer()})
    return create_until_clear(storage, retry_name(run), data) is PutOutcome.CREATED


def requested_retries(storage: Storage) -> frozenset[str]:
    """Return the ids of the runs to retry; one request."""
    found = (run_of_retry(listed.name) for listed in storage.list(RETRY_FOLDER))
    return frozenset(run for run in found if run is not None)


def settle_retries(storage: Storage, runs: Iterable[str]) -> None:
    """Delete the requests for these runs: they were retried, or their jobs are unknown."""
    storage.delete([retry_name(run) for run in runs])
