"""The benchmark of very many rows, run small: it goes through kills, and finds each fault that is planted."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from benchmarks.billion import __main__ as billion
from benchmarks.billion.rows import SCHEMA, Workload, keys_of, rows_of, stored
from benchmarks.billion.worker import Ledger, check
from lakebed.clock import random_token

WORKLOAD = Workload(rows=5_000, writers=3, batch_rows=400)


@pytest.mark.slow
def test_a_small_run_is_killed_verified_and_shown(tmp_path, capsys):
    page = tmp_path / "page.md"
    sizes = ["--rows", "20000", "--import-rows", "8000", "--partitions", "8", "--share", "40", "--interval", "0.5"]
    times = ["--hours", "0.006", "--kill-s", "8", "--sample-s", "2"]
    assert billion.main(["--folder", str(tmp_path / "run"), "--page", str(page), *sizes, *times]) == 0
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    assert found["verify"]["rows"] == 20_000
    assert found["verify"]["batches"] > 0
    assert len(found["upsert"]["kills_s"]) == 2
    assert found["import"]["partitions"] >= 4
    assert "none lost, doubled, old or damaged" in page.read_text()
    assert {path.name for path in tmp_path.glob("*.svg")} == {f"page_{name}.svg" for name in billion.PLOTS}
    # Another run does not mix with this one.
    assert billion.main(["--folder", str(tmp_path / "run"), "--rows", "1"]) == 2
    assert "other parameters" in capsys.readouterr().err


@pytest.fixture
def table():
    """A table of the workload after two batches of each writer, in order."""
    made = lakebed.create(f"memory://{random_token()}").create_table("t", SCHEMA, merge=lakebed.Latest())
    for rows in WORKLOAD.imported(0, WORKLOAD.rows):
        made.write(rows)
    for batch in range(2):
        for writer in range(WORKLOAD.writers):
            made.write(WORKLOAD.batch(writer, batch))
    return made


EXPECTED = {0: 2, 1: 2, 2: 2}
ONE = np.array([17])


def test_the_sums_are_those_of_the_ledgers(table):
    assert stored(table.scan()).differences(WORKLOAD.expected(EXPECTED)) == []


def test_a_row_belongs_to_one_writer_and_rows_are_distinct():
    written = [
        {number for batch in range(9) for number in WORKLOAD.numbers(writer, batch).tolist()}
        for writer in range(WORKLOAD.writers)
    ]
    assert len(set.union(*written)) == sum(map(len, written))
    assert max(map(max, written)) < WORKLOAD.rows
    assert len(np.unique(keys_of(np.arange(WORKLOAD.rows)))) == WORKLOAD.rows
    assert WORKLOAD.batch(0, 0)["text"][0].as_py().isalnum()


@pytest.mark.parametrize("fault", ["lost", "old", "more"])
def test_a_row_that_is_lost_or_old_or_too_many_is_found(table, fault):
    newest = WORKLOAD.numbers(0, 1)[:1]
    if fault == "lost":
        table.delete([int(keys_of(newest)[0])])
    else:
        table.write(rows_of(newest, 1) if fault == "old" else rows_of(np.array([WORKLOAD.rows]), 0))
    (line,) = stored(table.scan()).differences(WORKLOAD.expected(EXPECTED))
    assert line.startswith("keys from ")
    assert "sum of versions" in line


def test_a_commit_that_is_lost_is_found(table):
    assert stored(table.scan()).differences(WORKLOAD.expected({**EXPECTED, 1: 3}))


def test_a_doubled_key_and_a_damaged_text_are_errors():
    (batch,) = rows_of(np.arange(3), 0).sort_by("key").to_batches()
    with pytest.raises(ValueError, match="a key is there twice"):
        stored([batch, batch])
    damaged = batch.set_column(2, "text", pa.array(["x", *batch["text"].to_pylist()[1:]]))
    with pytest.raises(ValueError, match="is not that of its key and version"):
        stored([damaged])


def test_a_reader_wants_its_row_once_whole_and_as_new_as_acknowledged():
    row = rows_of(ONE, 3)
    check(17, 3, row)
    for wrong, text in (
        (row.slice(0, 0), "there 0 times"),
        (pa.concat_tables([row, row]), "there 2 times"),
        (rows_of(ONE, 2), "3 was acknowledged"),
        (row.set_column(2, "text", pa.array(["x"])), "not "),
    ):
        with pytest.raises(AssertionError, match=text):
            check(17, 3, wrong)


def test_a_ledger_says_what_was_begun_and_what_is_done(tmp_path):
    ledger = Ledger.of(Path(tmp_path), 0)
    assert ledger.batches() == (0, 0)
    ledger.note("begin", 0)
    ledger.note("done", 0, 0.5, 1)
    ledger.note("begin", 1)
    assert (ledger.batches(), ledger.seconds()) == ((2, 1), [0.5])
