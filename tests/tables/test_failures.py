"""Calls that failed are on record: who may read the record, how much is kept, and that nothing hides the error."""

from __future__ import annotations

from typing import Any

import pytest

import lakebed
from lakebed.errors import Code
from lakebed.jobs.interrupt import call_thread
from lakebed.jobs.job_progress import CallProgress
from lakebed.jobs.pipeline import interruptible
from lakebed.table.tracker.listing import FAILURES
from lakebed.table.tracker.recorder import MESSAGE_CHARS_MAX
from lakebed.table.tracker.runs import Begun
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from tests.tables.retention.cases import on, through


@pytest.fixture
def table(lake: lakebed.Instance) -> lakebed.Table:
    return lake.create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))


class Fake:
    """A pipeline whose call fails with what it is given."""

    def __init__(self, instance: lakebed.Instance) -> None:
        self.instance = instance
        self.progress = CallProgress(None)

    call_thread = staticmethod(call_thread)

    @interruptible  # type: ignore[arg-type]
    def bulk_import(self, table: Any, error: BaseException, *, job_id: str | None = None) -> None:
        raise error


def failed(instance: lakebed.Instance, error: BaseException, **given: str) -> None:
    with pytest.raises(type(error), match=str(error)[:20] or None):
        Fake(instance).bulk_import("t", error, **given)


def test_a_call_that_failed_is_on_record_with_its_reason(lake: lakebed.Instance, table: lakebed.Table) -> None:
    version = table.version
    failed(lake, Code.VALUE_INVALID("day.csv: column n: 'two' is not int64"), job_id="monday")
    failed(lake, RuntimeError("a bug"))
    found = table.failures()
    assert found.schema == FAILURES
    assert found.drop_columns(["time", "writer"]).to_pylist() == [
        {
            "version": version,
            "call": "import",
            "job": None,
            "error": "RuntimeError",
            "reason": "RuntimeError: a bug",
        },
        {
            "version": version,
            "call": "import",
            "job": "monday",
            "error": "schema_mismatch",
            "reason": "day.csv: column n: 'two' is not int64",
        },
    ]
    assert table.state().version == version, "a failure moves no number"


def test_a_call_that_was_refused_for_its_arguments_is_not_on_record(
    lake: lakebed.Instance, table: lakebed.Table
) -> None:
    failed(lake, Code.ARGUMENT_INVALID("no format 'xls'"))
    assert table.failures().num_rows == 0


def record_failure(table: lakebed.Table, error: BaseException, operation: str = "export") -> None:
    begun = Begun(operation=operation, table=table.name, table_id=table.id, base_version=1)
    table.tracker.record_failure(begun, error)


def test_the_newest_comes_first_and_reasons_are_bounded(table: lakebed.Table) -> None:
    for count in range(30):
        record_failure(table, Code.INTERNAL_ERROR(f"{count} {'x' * 10_000}"))
    reasons = table.failures()["reason"].to_pylist()
    assert [int(reason.split()[0]) for reason in reasons] == list(range(29, -1, -1))
    assert {len(reason) for reason in reasons} == {MESSAGE_CHARS_MAX}


def test_no_secret_is_on_record(table: lakebed.Table) -> None:
    class Clients:
        options = {"aws_secret_access_key": "hunter2hunter2", "aws_region": "eu-west-1"}  # noqa: RUF012

    class WithOptions(CountingStorage):
        clients = Clients()

    table = on(table, WithOptions(table.storage))
    text = "GET http://me:pass@host/x?X-Amz-Signature=abc in eu-west-1 with hunter2hunter2 failed"
    record_failure(table, Code.INTERNAL_ERROR(text), "export")
    (reason,) = table.failures()["reason"].to_pylist()
    assert reason == "GET http://...@host/x?... in eu-west-1 with ... failed"


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "'quotes\"\n"])
def test_any_text_can_be_a_reason(table: lakebed.Table, text: str) -> None:
    record_failure(table, Code.INTERNAL_ERROR(text), "\ud800")
    record_failure(table, Code.INTERNAL_ERROR(text), "export")
    assert table.failures()["reason"].to_pylist() == [Code.INTERNAL_ERROR(text).message] * 2


def test_a_store_that_takes_no_record_hides_no_error(lake: lakebed.Instance, table: lakebed.Table) -> None:
    full = FaultyStorage(lake.storage, FaultPlan([Rule(Fault.FULL, "create")]))
    recording = through(lake, full)
    failed(recording, Code.STORE_UNAVAILABLE("no room to sort"))
    recording.tracker.flush()
    assert full.fired
    assert table.failures().num_rows == 0


def test_a_failure_of_another_table_is_not_among_them(lake: lakebed.Instance, table: lakebed.Table) -> None:
    other = lake.create_table("other", table.schema)
    record_failure(other, Code.INTERNAL_ERROR("x"))
    assert table.failures().num_rows == 0
    assert other.failures().num_rows == 1
