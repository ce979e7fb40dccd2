"""A parked operation is a job on record; asking for a retry through the store reaches the service that parked it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.cli import main
from lakebed.server.service.plan import ServiceLimits
from lakebed.table.tracker.listing import job_runs
from lakebed.table.tracker.runs import JobRun, RunOutcome, requested_retries
from tests.service.test_recovery import QUICK, Fault, lake_with, service_of, until, write


def test_a_parked_operation_is_on_record_and_tried_again_by_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_with(tmp_path, Fault.FULL, "none")
    instance = lake.instance
    source = write(instance, "flights")
    select = "SELECT key, key || key || key AS wide FROM source"
    view = instance.create_view_table("copies", source="flights", select=select, row_key=["key"])
    view.set(value_bytes_max=8192)
    limits = ServiceLimits(follow_s=0.05, failures_max=2, periods=QUICK.periods)

    def parked() -> list[JobRun]:
        instance.tracker.flush()
        return [run for run in job_runs(instance.storage) if run.parked]

    with service_of(lake, limits) as service:
        until(lambda: view.count().rows == 10)
        source.write(pa.table({"key": ["x" * 3000], "value": [3]}))
        until(parked)
        (run,) = parked()
        assert (run.operation, run.table, run.tries) == ("refresh", "copies", 2)
        assert run.error is not None
        assert run.error.code == "row_too_large"
        failed = [one for one in job_runs(instance.storage) if one.outcome is RunOutcome.FAILED and not one.parked]
        assert len(failed) >= 2, "each failure is on record"
        found = service.status().table("copies")
        assert found is not None
        begun = found.operation("refresh").last_begun
        monkeypatch.setenv("LAKEBED_INSTANCE", instance.url)
        assert main(["jobs", "retry", run.id]) == 0

        def tried_again() -> bool:
            now = service.status().table("copies")
            return now is not None and now.operation("refresh").last_begun != begun

        until(tried_again)
        assert requested_retries(instance.storage) == frozenset()
        until(lambda: run.id not in [one.id for one in parked()])
