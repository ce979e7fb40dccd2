"""Unclear puts are repeated with growing pauses, and not for ever; so are reads without an answer."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from lakebed.clock import random_token
from lakebed.errors import Code, ExistsError, StorageError
from lakebed.jobs.bulk_import.staging import Quarantine, RejectedRows
from lakebed.jobs.executor import Root
from lakebed.log.segments import SegmentCache, SegmentStore
from lakebed.model.state.columns import SegmentRows
from lakebed.storage import PutOutcome, connect
from lakebed.storage.retries import ATTEMPTS_MAX, PAUSE_MAX_S, put_until_clear, read_until_answered
from lakebed.table.opening import _created
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.export.publication import publish
from lakebed.write.run import _put_summary
from tests.clocks import set_clock


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """The upper bounds of all pauses; none takes time."""
    drawn = []
    set_clock(monkeypatch, jitter_s=lambda limit_s: drawn.append(limit_s) or 0.0, sleep=lambda _: None)
    return drawn


def faulty(*rules):
    return FaultyStorage(connect(f"memory://{random_token()}"), FaultPlan(rules))


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.FAIL_BEFORE, PutOutcome.CREATED),
        (Fault.CONFLICT, PutOutcome.CREATED),
        (Fault.FAIL_AFTER, PutOutcome.EXISTS),
        (Fault.LATE, PutOutcome.EXISTS),
    ],
)
def test_an_unclear_put_is_repeated_until_its_outcome_is_clear(fault, outcome, limits):
    storage = faulty(Rule(fault, "create", calls={1}))
    assert put_until_clear(lambda: storage.create("a", b"1"), "a") is outcome
    assert storage.get("a") == b"1"
    assert len(limits) == storage.fired[fault] == 1


def test_a_clear_answer_costs_no_pause(limits):
    storage = faulty()
    assert put_until_clear(lambda: storage.create("a", b"1"), "a") is PutOutcome.CREATED
    assert put_until_clear(lambda: storage.create("a", b"2"), "a") is PutOutcome.EXISTS
    assert limits == []


def test_a_put_without_a_clear_answer_ends_and_pauses_grow(limits):
    storage = faulty(Rule(Fault.FAIL_BEFORE, "create"))
    with pytest.raises(StorageError, match=r"no clear answer to 8 puts of a: .* try again later") as caught:
        put_until_clear(lambda: storage.create("a", b"1"), "a")
    assert caught.value.facts == {"name": "a", "transient": True}
    assert storage.fired[Fault.FAIL_BEFORE] == ATTEMPTS_MAX
    assert len(limits) == ATTEMPTS_MAX - 1
    assert limits == sorted(limits)
    assert limits[0] < limits[-1] == PAUSE_MAX_S


def test_a_refused_put_is_not_repeated(limits):
    storage = faulty(Rule(Fault.FULL, "create"))
    with pytest.raises(StorageError, match="full"):
        put_until_clear(lambda: storage.create("a", b"1"), "a")
    assert storage.fired[Fault.FULL] == 1
    assert limits == []


def test_a_read_is_repeated_while_its_error_is_transient(limits):
    storage = faulty(Rule(Fault.FAIL_BEFORE, "last_modified", calls={1, 2}))
    storage.create("a", b"1")
    assert read_until_answered(lambda: storage.last_modified("a")) is not None
    assert len(limits) == 2


@pytest.mark.parametrize(("transient", "reads"), [(True, ATTEMPTS_MAX), (False, 1)])
def test_a_read_without_an_answer_ends_with_its_own_error(transient, reads):
    asked = []

    def read():
        asked.append(1)
        raise Code.STORE_UNAVAILABLE(f"cannot read, {len(asked)}", transient=transient)

    with pytest.raises(StorageError, match=f"cannot read, {reads}"):
        read_until_answered(read)
    assert len(asked) == reads


def create_an_instance(storage):
    _created(storage, None, None, among_others=False)


def write_a_segment(storage):
    batch = pa.RecordBatch.from_pydict({"id": ["a", "b"], "n": [1, 2]})
    codec = SimpleNamespace(schema=batch.schema, nullable=())
    SegmentStore(storage, lambda token: f"segments/{token}.arrow", SegmentCache(0)).put(SegmentRows(codec, batch))


def finish_an_export(storage):
    publish(storage, {"export": "0192", "files": []}, "0192")


@dataclass(frozen=True)
class At(Root):
    """The location of a store of the test."""

    storage: Any = None

    def connect(self):
        return self.storage


def finish_a_quarantine(storage):
    Quarantine(At(storage.url, storage=storage), "monday", "first").finish(
        [RejectedRows(1, ("monday/first-1.parquet",))], {}
    )


def write_a_summary(storage):
    _put_summary(storage, "f.summary", b"1")


@pytest.mark.parametrize(
    ("act", "name"),
    [
        (create_an_instance, "instance.json"),
        (write_a_segment, "segments/*"),
        (finish_an_export, "_manifest.json"),
        (finish_a_quarantine, "monday/_SUCCESS"),
        (write_a_summary, "f.summary"),
    ],
)
@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER])
def test_a_put_of_an_object_pauses_between_unclear_answers(act, name, fault, limits):
    storage = faulty(Rule(fault, "create", name, calls={1, 2}))
    act(storage)
    assert len(limits) == storage.fired[fault] == 2
    limits.clear()
    silent = faulty(Rule(Fault.FAIL_BEFORE, "create", name))
    with pytest.raises(StorageError, match=f"no clear answer to {ATTEMPTS_MAX} puts of "):
        act(silent)
    assert len(limits) == silent.fired[Fault.FAIL_BEFORE] - 1 == ATTEMPTS_MAX - 1


def test_an_export_does_not_take_the_manifest_of_another_for_its_own():
    """The first put has no answer, and another's object is there when it is repeated."""
    storage = faulty(Rule(Fault.FAIL_BEFORE, "create", "_manifest.json", calls={1}))
    storage.inner.create("_manifest.json", b"another")
    with pytest.raises(ExistsError, match="another export"):
        finish_an_export(storage)
    assert storage.get("_manifest.json") == b"another"
