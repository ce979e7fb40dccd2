"""A copy of an instance, made while it is written, compacted and collected, opens elsewhere and is whole."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from examples.backup import Copy, backup, entries_in_order
from lakebed.clock import random_token
from lakebed.storage import connect
from lakebed.upkeep.retention.run import gc

EXAMPLE = Path(__file__).parents[2] / "examples" / "backup.py"


def rows(first, count):
    return pa.table({"k": pa.array(range(first, first + count), pa.int64())})


@pytest.mark.parametrize("place", ["local", "memory"])
def test_a_copy_made_while_rows_are_written_is_whole(tmp_path, place):
    source = str(tmp_path / "lake") if place == "local" else f"memory://{random_token()}"
    target = str(tmp_path / "copy") if place == "local" else f"memory://{random_token()}"
    lake = lakebed.create(source)
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}), split_points=[1000, 2000])
    table.set(history_s=0, log_s=0)
    acknowledged = []
    stop = threading.Event()

    def write():
        first = 0
        while not stop.is_set():
            table.write(rows(first, 10))
            acknowledged.append(first)
            first += 10
            if first % 100 == 0:
                # A new table in the middle of it, and old files to be collected.
                lake.create_table(f"t{first}", lakebed.Schema({"k": "int64"})).write(rows(0, 5))
            if first % 200 == 0:
                table.remove(lakebed.KeyRange(max=first - 190))
                # As a service does.
                if "gc" not in lake.paused("t"):
                    gc(lake, [table])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while len(acknowledged) < 30:
            writer.join(0.01)
        for _ in range(2):
            before = table.version
            assert backup(source, target) > 0
            check(target, before)
    finally:
        stop.set()
        writer.join()
    assert not [name for name in lake.tables() if lake.paused(name)]
    backup(source, target)
    copy = lakebed.open(target)
    assert copy.tables() == lake.tables()
    assert copy.table("t").scan().read_all().equals(table.scan().read_all())
    assert copy.table("t").write(rows(10**6, 1)) == table.version + 1


def check(target, before):
    copy = lakebed.open(target)
    assert copy.table("t").state().version >= before
    for name in copy.tables():
        report = copy.table(name).verify(deep=True)
        assert report.sound, report.findings
        copy.table(name).scan().read_all()


def test_checkpoints_that_a_collection_retains_meanwhile(tmp_path, monkeypatch):
    """One beyond the copied log is left out; one that the log was truncated up to is copied."""
    source, target = str(tmp_path / "lake"), str(tmp_path / "copy")
    table = lakebed.create(source).create_table("t", lakebed.Schema({"k": "int64"}), settings={"log_s": 0})
    table.write(rows(0, 10))
    copy_logs = Copy._copy_logs

    def retained_before_and_after(copy, folder):
        if folder == "catalog":
            return copy_logs(copy, folder)
        table.write(rows(10, 10))
        earlier = table.log.retain_checkpoint()
        table.write(rows(20, 10))
        table.log.retain_checkpoint()
        table.log.truncate(earlier)
        copy_logs(copy, folder)
        table.write(rows(30, 10))
        table.log.retain_checkpoint()
        return None

    monkeypatch.setattr(Copy, "_copy_logs", retained_before_and_after)
    Copy(connect(source), connect(target)).run()
    table.log.wait_for_checkpoint()
    check(target, before=table.version - 1)
    assert lakebed.open(target).table("t").count().rows == 30


def test_the_example_says_how_much_it_copied(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    lake.create_table("t", lakebed.Schema({"k": "int64"})).write(rows(0, 3))
    command = [sys.executable, EXAMPLE, str(tmp_path / "lake"), str(tmp_path / "copy")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.endswith(" objects copied\n")
    assert lakebed.open(str(tmp_path / "copy")).table("t").count().rows == 3


def test_a_listing_that_missed_an_entry_ends_there():
    name = "tables/t/log/{:020}.ndjson".format
    other = "tables/t/log/log-start.ndjson"
    assert entries_in_order([name(5), name(3), other, name(2)]) == [name(2), name(3), other]
