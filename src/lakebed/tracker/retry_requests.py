"""Requests to try a parked job again, as objects that every service of an instance finds.

``lakebed jobs retry ID`` puts one; a service lists them at the beginning of a round, tries the jobs that it parked
under these ids, and deletes the requests. A request for a job that another service parked is left to that one. If that
service has ended, the request does nothing, since what is due is planned anew by the others, and is deleted with old
records of jobs (:func:`lakebed.tracker.records.trim_records`).

Errors: StorageError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code
from lakebed.log.entry import encode_header
from lakebed.model.checks import shown
from lakebed.model.files import RETRY_FOLDER, retry_name, run_of_retry
from lakebed.storage.contract import PutOutcome
from lakebed.storage.retries import create_until_clear
from lakebed.version import this_writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.storage.contract import Storage


def request_retry(storage: Storage, run: str) -> bool:
    """Ask for a parked job to be tried again; False if that was asked already. Raises UsageError for an invalid id."""
    if run_of_retry(retry_name(run)) is None:
        raise Code.ARGUMENT_INVALID(f"not the id of a job run: {shown(run)}; `lakebed jobs` lists them")
    data = encode_header(run=run, time=clock.now().isoformat(), writer=this_writer())
    return create_until_clear(storage, retry_name(run), data) is PutOutcome.CREATED


def requested_retries(storage: Storage) -> frozenset[str]:
    """The ids of the runs that are to be tried again; one request."""
    found = (run_of_retry(listed.name) for listed in storage.list(RETRY_FOLDER))
    return frozenset(run for run in found if run is not None)


def settle_retries(storage: Storage, runs: Iterable[str]) -> None:
    """Delete the requests for these runs: they were tried, or nobody knows them."""
    storage.delete([retry_name(run) for run in runs])
