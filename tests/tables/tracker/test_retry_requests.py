"""Requests to try a parked job again: asked once, found by every service, settled."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import lakebed
from lakebed import clock
from lakebed.table.tracker.runs import request_retry, requested_retries, settle_retries, trim_records
from tests.tables.retention.cases import Ahead


def test_a_request_is_found_until_it_is_settled(tmp_path: Path) -> None:
    storage = lakebed.create(tmp_path / "lake").storage
    one, other = clock.new_id(), clock.new_id()
    assert requested_retries(storage) == frozenset()
    assert request_retry(storage, one)
    assert not request_retry(storage, one), "it was asked already"
    request_retry(storage, other)
    assert requested_retries(storage) == {one, other}
    settle_retries(storage, [one, clock.new_id()])
    assert requested_retries(storage) == {other}


@pytest.mark.parametrize("run", ["", "../instance", "x", "a" * 80])
def test_only_ids_can_be_asked_for(tmp_path: Path, run: str) -> None:
    storage = lakebed.create(tmp_path / "lake").storage
    with pytest.raises(lakebed.UsageError, match="id of a job run"):
        request_retry(storage, run)
    assert requested_retries(storage) == frozenset()


def test_requests_that_no_service_took_are_trimmed(tmp_path: Path) -> None:
    storage = lakebed.create(tmp_path / "lake").storage
    request_retry(storage, clock.new_id())
    assert trim_records(storage, kept_s=7 * 86_400.0) == 0
    later = Ahead(storage, timedelta(hours=1, seconds=1))
    assert trim_records(later, kept_s=7 * 86_400.0) == 1
    assert requested_retries(storage) == frozenset()
