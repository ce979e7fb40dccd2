"""The quarantine of an import: what is put aside, what of it counts, and what goes again."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import ExistsError, UsageError
from lakebed.jobs.bulk_import.staging import Quarantine, RejectedRows, RejectedRowsWriter
from lakebed.jobs.executor import Root

BAD = pa.RecordBatch.from_pydict({"n": ["x", "y"]})
ODD = pa.RecordBatch.from_pydict({"n": [None], "more": [1]})


def quarantine(tmp_path, attempt="first"):
    return Quarantine(Root(str(tmp_path / "bad")), "monday", attempt)


def put(tmp_path, *batches, attempt="first"):
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    aside = RejectedRowsWriter(quarantine(tmp_path, attempt), scratch)
    for batch in batches:
        aside.add(batch)
    return aside.send()


def names(tmp_path):
    return sorted(path.name for path in (tmp_path / "bad" / "monday").iterdir())


def test_rows_of_one_form_are_one_file(tmp_path):
    """Files of a source may differ in their columns; nothing is made to fit, for that is what failed."""
    sent = put(tmp_path, BAD, ODD, BAD)
    assert sent.rows == 5
    found = [pq.read_table(tmp_path / "bad" / name).to_pylist() for name in sent.names]
    assert found == [[{"n": "x"}, {"n": "y"}] * 2, [{"n": None, "more": 1}]]


def test_nothing_put_aside_leaves_nothing(tmp_path):
    assert put(tmp_path) == RejectedRows()
    quarantine(tmp_path).finish([RejectedRows()], {})
    assert not (tmp_path / "bad").exists()


def test_what_counts_is_named_and_what_a_task_did_twice_goes(tmp_path):
    """The answer of one attempt came back; the other's file would have been named by none."""
    put(tmp_path, BAD)
    counted = put(tmp_path, BAD)
    other = put(tmp_path, BAD, attempt="other")
    quarantine(tmp_path).finish([counted], {"version": 7})
    manifest = json.loads((tmp_path / "bad" / "monday" / "_SUCCESS").read_text())
    assert (manifest["version"], manifest["job"], manifest["rows"]) == (7, "monday", 2)
    assert [f"monday/{name}" for name in manifest["files"]] == list(counted.names)
    assert names(tmp_path) == sorted(["_SUCCESS", *manifest["files"], other.names[0].removeprefix("monday/")])


def test_an_attempt_that_failed_takes_its_own_files_away(tmp_path):
    put(tmp_path, BAD)
    other = put(tmp_path, BAD, attempt="other")
    quarantine(tmp_path).discard()
    assert [f"monday/{name}" for name in names(tmp_path)] == list(other.names)


def test_a_folder_that_counts_is_not_written_to(tmp_path):
    quarantine(tmp_path).check()
    quarantine(tmp_path).finish([put(tmp_path, BAD)], {})
    with pytest.raises(ExistsError, match="rejected rows of another import with the job id monday"):
        quarantine(tmp_path).check()
    with pytest.raises(UsageError, match="unsafe object name"):
        Quarantine(Root(str(tmp_path)), "a/../b", "first").check()
