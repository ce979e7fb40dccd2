"""Requests to try parked work again are taken by the service that parked it."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed.errors import Code
from lakebed.model.state.catalog import CatalogTable
from lakebed.server.service.parking import Parking
from lakebed.table.tracker.listing import job_runs
from lakebed.table.tracker.runs import request_retry
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from tests.tables.retention.cases import through


@pytest.mark.parametrize("deleted", [True, False])
def test_a_request_is_taken_if_the_answer_to_its_deletion_is_lost(tmp_path: Path, deleted: bool) -> None:
    made = lakebed.create(tmp_path / "lake")
    storage = FaultyStorage(made.storage, FaultPlan(()))
    instance = through(made, storage)
    taken: list[tuple[str, str]] = []
    parking = Parking(instance, lambda table, operation: taken.append((table, operation)))
    table = CatalogTable("1" * 32, "flights")
    parking.park(table, "gc", Code.STORE_UNAVAILABLE("the store does not answer"), 3)
    instance.tracker.flush()
    (run,) = [one for one in job_runs(instance.storage) if one.parked]
    request_retry(instance.storage, run.id)
    storage.plan = FaultPlan([Rule(Fault.FAIL_AFTER if deleted else Fault.FAIL_BEFORE, "delete")])
    parking.look(0.0)
    assert storage.fired
    storage.plan = FaultPlan(())
    parking.look(3600.0)
    assert taken == [(table.id, "gc")], "once"
    assert not parking.has(table.id, "gc")
