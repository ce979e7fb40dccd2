"""What travels between driver and tasks arrives as it was sent, and only as what was expected."""

import operator
import os
import pickle
import subprocess
import sys

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from lakebed import errors
from lakebed.files.parquet.layout import Layout
from lakebed.jobs.bulk_import.shuffle import Account, Reduced
from lakebed.jobs.bulk_import.staging import RejectedRows, Staged
from lakebed.jobs.executor import attempt, take_answer
from lakebed.model.files import NewFile
from lakebed.model.keys import EncodedRange
from lakebed.model.settings import Settings
from lakebed.model.state.transactions.schema_growth import new_field
from lakebed.table.tracker.recorder import NO_RUN
from lakebed.upkeep.compaction.run import MergeTask
from lakebed.upkeep.export.publication import ExportedFile
from tests.pure.state.cases import SCHEMA, new_file

ADDED = (new_field("x", pa.list_(pa.int8()), ()), new_field("y", "timestamp[us, tz=UTC]", ()))
FILES = (new_file("f1", "abc"), replace(new_file("f2", "xyz", "run"), added=ADDED))


def same(value):
    return value


def failing(error):
    raise error


def returned(value, made, work=same):
    """What the driver gets of a task that works on the value."""
    return take_answer(attempt(work, pickle.dumps(value)), made, NO_RUN, 0)


def test_a_merge_task_arrives():
    task = MergeTask(
        job="job-1",
        table_id="table-1",
        slices=(EncodedRange(b"", b"\xff\x00"), EncodedRange(b"\xff\x00", None)),
        inputs=tuple(new.file for new in FILES),
        layout=Layout.of(SCHEMA, Settings()),
        memory_limit_bytes=1,
        rows=6,
    )
    assert returned((task, task), bool, work=lambda given: given == (task, task)) is True


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (FILES, tuple[NewFile, ...]),
        ((ExportedFile("part-1", 3, 40, "ab"),), tuple[ExportedFile, ...]),
        (Staged(5, FILES, RejectedRows(2, ("a", "b"))), Staged),
        (Reduced(FILES, {7: Account(3, "ab", 2, ((0, 1, "cd"),))}), Reduced),
    ],
    ids=["sent", "exported", "staged", "reduced"],
)
def test_a_result_arrives(value, made):
    assert returned(value, made) == value


def test_a_result_of_another_type_is_refused():
    with pytest.raises(msgspec.ValidationError):
        returned([[1, 2, 3]], tuple[NewFile, ...])


def test_a_result_that_is_no_data_is_an_error_of_its_task():
    found = returned(operator.add, tuple[NewFile, ...])
    assert isinstance(found, errors.Error)


def test_an_error_arrives_with_its_class_and_facts():
    broken = errors.Code.SUMMARY_DAMAGED("broken", name="x", where=())
    found = returned(broken, int, work=failing)
    assert type(found) is errors.DamagedError
    assert (str(found), found.kind, found.facts) == ("broken", "damaged", {"name": "x"})
    assert found.code is errors.Code.SUMMARY_DAMAGED


def test_an_error_that_is_not_ours_arrives_with_its_name():
    found = returned(ZeroDivisionError("by zero"), int, work=failing)
    assert type(found) is errors.Error
    assert str(found) == "ZeroDivisionError: by zero"
    assert found.code is errors.Code.FOREIGN_ERROR


def test_no_name_of_the_module_passes_for_a_class_of_error():
    assert (
        type(errors.decode_error({"class": "annotations", "code": "foreign_error", "message": "m", "facts": {}}))
        is errors.Error
    )


def test_the_engine_of_a_task_keeps_freed_memory_for_a_second():
    """Its allocator reads its options when the engine is imported, which nothing does that a worker has before."""
    begin = "import sys, lakebed.jobs.tasks, lakebed.jobs.bulk_import.importer, lakebed.jobs.worker_pool as pool"
    code = f"{begin}; print('task', file=sys.stderr); pool.on_one_core()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MIMALLOC_")}
    environment["MIMALLOC_VERBOSE"] = "1"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "option 'purge_delay': 1000" in done.stderr.partition("task\n")[2]
