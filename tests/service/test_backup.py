"""A copy of an instance, made while it is written, compacted and collected, opens elsewhere and is whole."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli import main
from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.storage import connect
from lakebed.table.backup import PASSED_OVER, REPLACED, InstanceCopy, backup, entries_in_order
from lakebed.upkeep.retention.run import gc
from tests.raising import raises
from tests.soaked import few
from tests.waiting import join_checkpoints

FORMAT = Path(__file__).parents[2] / "docs" / "format.md"


def rows(first, count):
    return pa.table({"k": pa.array(range(first, first + count), pa.int64())})


@pytest.mark.parametrize("place", few(["local", "memory"], 1))
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
            assert backup(lake, connect(target)) > 0
            check(target, before)
    finally:
        stop.set()
        writer.join()
    assert not [name for name in lake.tables() if lake.paused(name)]
    backup(lake, connect(target))
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


def test_checkpoints_that_a_collection_retains_meanwhile(tmp_path):
    """One beyond the copied log is left out; one that the log was truncated up to is copied."""
    source, target = str(tmp_path / "lake"), str(tmp_path / "copy")
    table = lakebed.create(source).create_table("t", lakebed.Schema({"k": "int64"}), settings={"log_s": 0})
    table.write(rows(0, 10))

    class Retaining(InstanceCopy):
        """The table's checkpoints are retained before its log is copied, and after."""

        def _copy_logs(self, folder):
            if folder == "catalog":
                super()._copy_logs(folder)
                return
            table.write(rows(10, 10))
            earlier = table.log.retain_checkpoint()
            table.write(rows(20, 10))
            table.log.retain_checkpoint()
            table.log.truncate(earlier)
            super()._copy_logs(folder)
            table.write(rows(30, 10))
            table.log.retain_checkpoint()

    Retaining(connect(source), connect(target)).run()
    table.log.wait_for_checkpoint()
    check(target, before=table.version - 1)
    assert lakebed.open(target).table("t").count().rows == 30


def command(capsys, *words):
    """The exit code, and what the command prints."""
    code = main(list(words))
    said = capsys.readouterr()
    return code, said.out + said.err


def test_a_backup_is_verified_adds_what_is_new_and_is_restored_into_an_empty_place(tmp_path, capsys):
    source, copy, restored = (str(tmp_path / name) for name in ("lake", "copy", "restored"))
    lake = lakebed.create(source)
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(rows(0, 3))
    code, said = command(capsys, "-i", source, "backup", "create", copy)
    assert (code, "objects copied; 1 table verified" in said) == (0, True), said
    table.write(rows(3, 2))
    assert command(capsys, "-i", source, "backup", "create", copy)[0] == 0
    assert not lake.paused("t"), "collection goes on in the original"
    code, said = command(capsys, "-i", restored, "backup", "restore", copy)
    assert (code, "1 table verified" in said) == (0, True), said
    again = lakebed.open(restored)
    assert again["t"].count().rows == 5
    assert not again.paused("t"), "and in what was restored"
    again["t"].write(rows(5, 1))
    code, said = command(capsys, "-i", restored, "backup", "restore", copy)
    assert (code, "restore into an empty place" in said) == (2, True), said


def test_every_object_that_changes_is_copied_again():
    """As the page of the format lists them; pins are not copied."""
    rows_of = FORMAT.read_text("utf-8").partition("## 1. Objects")[2].partition("\n\n")[2].partition("\n\n")[0]
    listed = [line.split(" | ") for line in rows_of.splitlines() if line.startswith("| `")]
    changes = [(names, written) for names, written, *_ in listed if "overwritten" in written or "replace" in written]
    changing = [name for row in changes for cell in row for name in re.findall("`([^`]+)`", cell)]
    assert len(changing) > 5
    for name in changing:
        is_folder = name.endswith("…")
        example = re.sub(r"<[a-z ]+>", "7", "queries/7/" + name if name.startswith("attempt") else name)
        assert is_folder or REPLACED.fullmatch(example) or PASSED_OVER.fullmatch(example), name


def test_a_token_that_was_revoked_is_none_in_the_next_copy(tmp_path, capsys):
    source, copy = str(tmp_path / "lake"), str(tmp_path / "copy")
    lakebed.create(source)
    for _ in range(2):
        assert command(capsys, "-i", source, "token", "create", "ann", "--role", "read")[0] == 0
    tokens = sorted((tmp_path / "lake" / "access" / "tokens").iterdir())
    assert command(capsys, "-i", source, "backup", "create", copy)[0] == 0
    assert command(capsys, "-i", source, "token", "drop", tokens[0].stem)[0] == 0
    assert command(capsys, "-i", source, "backup", "create", copy)[0] == 0
    assert [one.name for one in (tmp_path / "copy" / "access" / "tokens").iterdir()] == [tokens[1].name]


@pytest.mark.parametrize(
    ("target", "says"),
    [("lake", "one place"), ("lake/copy", "inside the other"), ("", "inside the other"), ("other", "another instance")],
)
def test_a_place_that_is_no_place_for_a_copy_is_refused(tmp_path, capsys, target, says):
    for name in ("lake", "other"):
        lakebed.create(str(tmp_path / name)).create_table("t", lakebed.Schema({"k": "int64"})).write(rows(0, 3))
    join_checkpoints()
    before = sorted(tmp_path.rglob("*"))
    code, said = command(capsys, "-i", str(tmp_path / "lake"), "backup", "create", str(tmp_path / target))
    assert (code, says in said) == (2, True), said
    assert sorted(tmp_path.rglob("*")) == before


def test_a_restore_that_was_interrupted_goes_on(tmp_path, capsys):
    source, copy, restored = (str(tmp_path / name) for name in ("lake", "copy", "restored"))
    lake = lakebed.create(source)
    lake.create_table("t", lakebed.Schema({"k": "int64"})).write(rows(0, 3))
    backup(lake, connect(copy))
    backed_up, half = connect(copy), connect(restored)
    for found in sorted(backed_up.list(""), key=lambda one: one.name)[:3]:
        half.create(found.name, backed_up.get(found.name))
    assert command(capsys, "-i", restored, "backup", "restore", copy)[0] == 0
    assert lakebed.open(restored)["t"].count().rows == 3


def test_a_copy_that_was_written_is_reported(tmp_path, capsys):
    """Its log has an entry of its own, which the next one of the original does not follow."""
    source, copy = str(tmp_path / "lake"), str(tmp_path / "copy")
    table = lakebed.create(source).create_table("t", lakebed.Schema({"k": "int64"}))
    table.write(rows(0, 3))
    assert command(capsys, "-i", source, "backup", "create", copy)[0] == 0
    lakebed.open(copy)["t"].write(rows(7, 1))
    for first in (3, 6):
        table.write(rows(first, 3))
    code, said = command(capsys, "-i", source, "backup", "create", copy)
    assert code == 3, said
    assert lakebed.open(source)["t"].count().rows == 9


def test_a_log_in_a_database_is_backed_up_there_first(tmp_path):
    log = f"memory://{random_token()}"
    lake = lakebed.create(str(tmp_path / "lake"), log_url=log)
    with raises(Code.ARGUMENT_INVALID):
        backup(lake, connect(tmp_path / "copy"))


def test_a_listing_that_missed_an_entry_ends_there():
    name = "tables/t/log/{:020}.ndjson".format
    other = "tables/t/log/log-start.ndjson"
    assert entries_in_order([name(5), name(3), other, name(2)]) == [name(2), name(3), other]
