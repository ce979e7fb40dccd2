"""A store that is gone or full, and comes back, under a service; and an operation that keeps failing."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakebed
from lakebed import Schema
from lakebed.model.operations import OPERATIONS
from lakebed.server.service.plan import ServiceLimits
from lakebed.server.service.service import Service
from lakebed.server.service.status import LastError, OperationStatus
from lakebed.storage import connect
from lakebed.table.instance import Instance
from lakebed.table.tracker.listing import job_runs
from lakebed.table.tracker.runs import request_retry, requested_retries
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from tests.waiting import until

SCHEMA = Schema({"key": "string"}, values={"value": "int64"})
QUICK = ServiceLimits(follow_s=0.05, periods=dict.fromkeys(OPERATIONS, 0.05))


class Switch(Collection[int]):
    """The calls that fail: all while it is on, none while it is off."""

    on = False

    def __contains__(self, call: object) -> bool:
        return self.on

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Lake:
    """An instance as users have it, and one whose store fails when a switch is on, for the service."""

    instance: lakebed.Instance
    failing: Instance
    switch: Switch
    said: list[str]


def lake_with(tmp_path: Path, fault: Fault, name: str) -> Lake:
    instance = lakebed.create(str(tmp_path / "lake"))
    switch = Switch()
    storage = FaultyStorage(connect(instance.url), FaultPlan([Rule(fault, name=name, calls=switch)]))
    document = json.loads((tmp_path / "lake" / "instance.json").read_bytes())
    return Lake(instance, Instance(storage, document), switch, [])


def write(instance: lakebed.Instance, name: str) -> lakebed.Table:
    table = instance.create_table(name, SCHEMA)
    for _ in range(5):
        table.write(pa.table({"key": ["a", "b"], "value": [1, 2]}))
    return table


def compaction(service: Service, name: str) -> OperationStatus:
    table = service.status().table(name)
    assert table is not None
    return table.operation("compaction")


def service_of(lake: Lake, limits: ServiceLimits = QUICK) -> Service:
    return Service(lake.failing, launcher="in-process[1]", limits=limits, report=lake.said.append)


def test_a_store_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    lake = lake_with(tmp_path, Fault.FAIL_BEFORE, "*")
    with service_of(lake) as service:
        lake.switch.on = True
        until(lambda: service.status().error)
        table = write(lake.instance, "flights")
        error = service.status().error
        assert error is not None
        assert error.code == "store_unavailable"
        time.sleep(0.3)
        # Since when, not when last.
        assert service.status().error == error
        lake.switch.on = False
        until(lambda: not service.status().error)
        until(lambda: len(table.state().files_of(1)) == 1)
    assert table.count().rows == 10
    assert len(lake.said) == 2, lake.said


def test_a_log_that_cannot_be_read_says_since_when(tmp_path: Path) -> None:
    lake = lake_with(tmp_path, Fault.FAIL_BEFORE, "tables/*/log/*")
    write(lake.instance, "flights")
    service = service_of(lake)

    def error() -> LastError | None:
        table = service.status().table("flights")
        return None if table is None else table.error

    assert error() is None
    lake.switch.on = True
    first = error()
    assert first is not None
    assert error() == first
    lake.switch.on = False
    assert error() is None


def test_an_operation_waits_for_a_full_disk_and_says_since_when(tmp_path: Path) -> None:
    lake = lake_with(tmp_path, Fault.FULL, "tables/*/log/*")
    table = write(lake.instance, "flights")
    lake.switch.on = True
    with service_of(lake) as service:
        until(lambda: compaction(service, "flights").failures_in_a_row >= 3)
        waiting = compaction(service, "flights")
        assert waiting.last_error is not None
        assert waiting.last_error.code == "store_full"
        assert waiting.waiting_since is not None
        assert waiting.waiting_since <= waiting.last_error.at
        assert waiting.waiting_for == waiting.last_error.message
        assert waiting.next_at is not None
        assert not waiting.parked
        lake.switch.on = False
        until(lambda: compaction(service, "flights").last_outcome)
        assert compaction(service, "flights").waiting_since is None
    assert len(table.state().files_of(1)) == 1
    assert table.count().rows == 10


def test_an_operation_that_keeps_failing_is_parked_until_a_retry(tmp_path: Path) -> None:
    lake = lake_with(tmp_path, Fault.FULL, "none")
    view_source = write(lake.instance, "flights")
    select = "SELECT key, key || key || key AS wide FROM source"
    view = lake.instance.create_view_table("copies", source="flights", select=select, row_key=["key"])
    view.set(value_bytes_max=8192)
    limits = ServiceLimits(follow_s=0.05, failures_max=2, periods=QUICK.periods)
    with service_of(lake, limits) as service:
        until(lambda: view.count().rows == 10)
        # A row that is too large for the view.
        view_source.write(pa.table({"key": ["x" * 3000], "value": [3]}))

        def refresh() -> OperationStatus:
            found = service.status().table("copies")
            assert found is not None
            return found.operation("refresh")

        until(lambda: refresh().parked)
        assert refresh().last_error is not None
        assert refresh().next_at is None
        assert any("parked after 2 failures" in line for line in lake.said)
        begun = refresh().last_begun
        service.retry("copies", "refresh")
        until(lambda: refresh().last_begun != begun)
        # The same by `lakebed jobs retry`.
        until(lambda: refresh().parked)
        begun = refresh().last_begun
        lake.failing.tracker.flush()
        parked = [run for run in job_runs(lake.instance.storage) if run.parked]
        assert {(run.operation, run.table, run.outcome) for run in parked} == {("refresh", "copies", "failed")}
        assert request_retry(lake.instance.storage, parked[0].id)
        until(lambda: refresh().last_begun != begun)
        assert not requested_retries(lake.instance.storage)
        # Nothing else was held up.
        other = write(lake.instance, "fares")
        # It may have merged four of them before the fifth came.
        until(lambda: len(other.state().files_of(1)) < 4)
