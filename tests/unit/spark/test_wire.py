"""What travels between driver and tasks arrives as it was sent."""

from dataclasses import replace

import pyarrow as pa
import pytest

from lakebed import errors
from lakebed.maintenance.compaction.run import MergeTask
from lakebed.model.keys import EncodedRange
from lakebed.parquet.layout import Layout
from lakebed.settings import Settings
from lakebed.spark import wire
from lakebed.state.transactions.schema_growth import new_field
from tests.unit.state.cases import SCHEMA, key, new_file


def sent(document):
    return wire.load(wire.dump(document))


def test_a_merge_task_arrives():
    task = MergeTask(
        job="job-1",
        table_id="table-1",
        slices=(EncodedRange(b"", b"\xff\x00"), EncodedRange(b"\xff\x00", None)),
        inputs=(new_file("f1", "abc").file, new_file("f2", "xyz").file),
        layout=Layout.of(SCHEMA, Settings()),
        memory_limit_bytes=1,
        rows=6,
    )
    assert wire.decode_task(sent(wire.encode_task(task))) == task


def test_new_files_arrive_with_their_summaries():
    added = new_field("x", pa.list_(pa.int8()), ()), new_field("y", "timestamp[us, tz=UTC]", ())
    files = (new_file("f1", "abc"), replace(new_file("f2", "xyz", "run"), added=added))
    assert wire.decode_new_files(sent(wire.encode_new_files(files))) == files


@pytest.mark.parametrize("keys", [EncodedRange(), EncodedRange(key("a"), key("b"))])
def test_a_range_arrives(keys):
    assert wire.decode_range(sent(wire.encode_range(keys))) == keys


def test_an_error_arrives_with_its_class_and_facts():
    broken = errors.Code.SUMMARY_DAMAGED("broken", name="x", where=object())
    found = errors.decode_error(sent(errors.encode_error(broken)))
    assert type(found) is errors.DamagedError
    assert (str(found), found.kind, found.facts) == ("broken", "damaged", {"name": "x"})
    assert found.code is errors.Code.SUMMARY_DAMAGED


def test_an_error_that_is_not_ours_arrives_with_its_name():
    found = errors.decode_error(sent(errors.encode_error(ZeroDivisionError("by zero"))))
    assert type(found) is errors.Error
    assert str(found) == "ZeroDivisionError: by zero"
    assert found.code is errors.Code.FOREIGN_ERROR


def test_no_name_of_the_module_passes_for_a_class_of_error():
    assert (
        type(errors.decode_error({"class": "annotations", "code": "foreign_error", "message": "m", "facts": {}}))
        is errors.Error
    )
