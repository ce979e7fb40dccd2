"""Bulk imports in worker processes: sources, job ids, and what faults leave behind."""

from __future__ import annotations

import errno
import json
import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import lakebed
from lakebed import Pipeline, SchemaMismatchError, StorageError
from lakebed.errors import Code, Error
from lakebed.jobs.executor import MapReduce, Piece, Root, TableCall
from lakebed.jobs.interrupt import Stop
from lakebed.jobs.job_progress import Progress
from lakebed.jobs.worker_pool import WorkerPool
from lakebed.model.settings import MIB
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.hive import open_hive
from lakebed.upkeep.migration.run import Selection
from tests.pipeline.task_faults import (
    FaultyPool,
    always_killed,
    killed_after,
    killed_as_it_fails,
    killed_in_its_folder,
    memory_of,
    on_full_disk,
    used_and_freed,
)
from tests.pipeline.test_in_process import SLOW, STOPPING, WITHOUT_SPARK, is_gone, started
from tests.soaked import few
from tests.spark.cases import SCHEMA, assert_holds, rows, write_parquet
from tests.spark.killing import TIMEOUT_S, begin, child
from tests.waiting import WAIT_S, until

PARTS = [rows(seed, 700) for seed in range(3)]
MANY_FILES = {"file_bytes": 4096, "row_group_rows": 1000}
PLAIN = lakebed.Schema({"k": "int64"}, values={"v": "string"})


WITHOUT_PYSPARK = WITHOUT_SPARK.replace(', "pandas"', "")
"""PyArrow takes a module that cannot be imported for one that can."""


@pytest.fixture
def table(lake: lakebed.Instance) -> lakebed.Table:
    return lake.create_table("t", SCHEMA, split_points=[("b",)], settings=MANY_FILES)


def plain_rows(first: int, count: int = 50) -> pa.Table:
    return pa.table({"k": range(first, first + count), "v": [f"v{n}" for n in range(count)]}, schema=PLAIN.arrow)


def write_as(form: str, folder: Path, *parts: pa.Table) -> Path:
    folder.mkdir()
    for number, part in enumerate(parts):
        path = folder / f"{number}.{form}"
        match form:
            case "parquet":
                pq.write_table(part, path)
            case "csv":
                pc.write_csv(part, path)
            case "json":
                path.write_text("".join(json.dumps(row) + "\n" for row in part.to_pylist()))
            case "orc":
                orc.write_table(part, path)
            case "arrow":
                with pa.ipc.new_file(path, part.schema) as writer:
                    writer.write_table(part)
    return folder


def left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith("lakebed-")]


# -- sources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["parquet", "csv", "json", "orc", "arrow"])
def test_files_of_every_format_come_in(pipeline: Pipeline, lake: lakebed.Instance, tmp_path: Path, form: str) -> None:
    table = lake.create_table("plain", PLAIN)
    parts = [plain_rows(first) for first in (100, 0, 50)]
    report = pipeline.bulk_import(table, write_as(form, tmp_path / "in", *parts))
    assert (report.rows, report.rows_written, report.source_files) == (150, 150, 3)
    assert_holds(table, *parts)
    assert table.verify(files=True, deep=True).sound


def test_rows_go_to_many_reducers_and_partitions_exactly_once(
    pipeline: Pipeline, table: lakebed.Table, tmp_path: Path
) -> None:
    report = pipeline.bulk_import(table, write_parquet(tmp_path / "in", *PARTS), partition_rows=500)
    assert report.reduce_tasks > 4
    assert report.partitions_split > 0
    assert_holds(table, *PARTS)
    assert set(table.partitions().column("runs").to_pylist()) == {1}
    assert all(table.partitions().column("exact").to_pylist())


def test_no_rows_add_nothing(pipeline: Pipeline, table: lakebed.Table, tmp_path: Path) -> None:
    report = pipeline.bulk_import(table, write_parquet(tmp_path / "in", PARTS[0].slice(0, 0)))
    assert (report.rows, report.map_tasks, report.reduce_tasks, report.version) == (0, 0, 0, None)
    assert table.version == 1


def test_new_columns_are_added_with_their_rows(pipeline: Pipeline, lake: lakebed.Instance, tmp_path: Path) -> None:
    table = lake.create_table("grows", lakebed.Schema({"k": "int64"}), settings={"schema_growth": "add"})
    parts = [pa.table({"k": [number], f"x{number}": [f"{number}"]}) for number in range(2)]
    assert pipeline.bulk_import(table, write_as("json", tmp_path / "in", *parts)).rows == 2
    assert table.scan().read_all().to_pylist() == [{"k": 0, "x0": "0", "x1": None}, {"k": 1, "x0": None, "x1": "1"}]


def test_progress_has_all_rows_at_the_end_of_its_last_phase(
    pipeline: Pipeline, lake: lakebed.Instance, tmp_path: Path
) -> None:
    table = lake.create_table("plain", PLAIN)
    seen: list[Progress] = []
    pipeline.bulk_import(table, write_as("csv", tmp_path / "in", plain_rows(0), plain_rows(50)), progress=seen.append)
    phases = list(dict.fromkeys(one.phase for one in seen))
    assert phases == ["read", "sort and merge", "commit"]
    assert (seen[-1].rows_done, seen[-1].rows_total) == (100, 100)
    for phase in phases:
        done = [one.rows_done for one in seen if one.phase == phase]
        assert done == sorted(done)


def test_large_ingest_jobs_and_migrations_are_sorted_by_many_tasks(
    pipeline: Pipeline, lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path
) -> None:
    table.submit(write_parquet(tmp_path / "in", *PARTS))
    report = pipeline.ingest(table, force=True, method="shuffle")
    assert (report.rows, report.requests) == (2100, 3)
    assert report.files > 4
    assert_holds(table, *PARTS)
    hive = lake.create_table("hive", lakebed.Schema({"k": "int64"}, values={"v": "string", "w": "string"}))
    for part in "xy":
        (tmp_path / "hive" / f"w={part}").mkdir(parents=True)
        pq.write_table(plain_rows(ord(part)), tmp_path / "hive" / f"w={part}" / "rows.parquet")
    source = open_hive(SourceLocation(str(tmp_path / "hive"), lake.storage))
    chosen = Selection({}, frozenset(), frozenset())
    assert pipeline.migrate(hive, source, chosen, job_id="once").rows_read == 100
    assert pipeline.migrate(hive, source, chosen, job_id="once").repeated
    assert hive.count(exact=True).rows == 100


# -- rows that do not fit ---------------------------------------------------------------------------------------


def bad_files(folder: Path) -> Path:
    folder.mkdir()
    (folder / "0.csv").write_text("k,v\n1,a\n2,b\n")
    (folder / "1.csv").write_text("k,v\n3,c\nfour,d\n5,e\n")
    return folder


def test_a_row_that_does_not_fit_fails_the_import_and_names_it(
    pipeline: Pipeline, lake: lakebed.Instance, tmp_path: Path
) -> None:
    table = lake.create_table("plain", PLAIN)
    with pytest.raises(SchemaMismatchError, match=r"1\.csv.*four"):
        pipeline.bulk_import(table, bad_files(tmp_path / "in"))
    assert table.version == 1


def test_with_a_quarantine_it_is_kept_apart(pipeline: Pipeline, lake: lakebed.Instance, tmp_path: Path) -> None:
    table = lake.create_table("plain", PLAIN)
    report = pipeline.bulk_import(table, bad_files(tmp_path / "in"), quarantine=tmp_path / "bad", job_id="monday")
    assert (report.rows, report.rejected) == (4, 1)
    assert table.scan().read_all().column("k").to_pylist() == [1, 2, 3, 5]
    (path,) = (tmp_path / "bad" / "monday").glob("*.parquet")
    assert pq.read_table(path).column("k").to_pylist() == ["four"]
    assert (tmp_path / "bad" / "monday" / "_SUCCESS").exists()


# -- job ids ----------------------------------------------------------------------------------------------------


def test_a_job_id_is_imported_once_also_by_two_processes_at_once(
    pipeline: Pipeline, lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    write_parquet(source, *PARTS)
    with child("in-process", "import", lake.url, source, "monday") as other:
        begin(other)
        ours = pipeline.bulk_import(table, source, job_id="monday")
        said = other.stdout.readline()
        assert other.wait(TIMEOUT_S) == 0
    assert ours.repeated != ("repeated=True" in said)
    assert_holds(table, *PARTS)
    again = pipeline.bulk_import(table, source, job_id="monday")
    assert (again.repeated, again.version) == (True, ours.version)
    assert_holds(table, *PARTS)


# -- faults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", few([1, 0], 1), ids=["reduce", "map"])
def test_a_task_whose_worker_is_killed_is_run_again(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path, call: int
) -> None:
    """After it did its work, before it said so: what it wrote does not count."""
    faults = [None] * call + [partial(killed_after, tmp_path / "killed")]
    with Pipeline(lake, launcher=FaultyPool(*faults)) as pipeline:
        report = pipeline.bulk_import(table, write_parquet(tmp_path / "in", *PARTS))
        assert pipeline.executor.calls == 3
    assert (tmp_path / "killed").exists()
    assert report.rows == 2100
    assert_holds(table, *PARTS)
    assert table.verify(files=True, deep=True).sound


def test_a_task_whose_workers_all_die_fails_the_import(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path
) -> None:
    with Pipeline(lake, launcher=FaultyPool(*[always_killed] * 9)) as pipeline:
        with pytest.raises(Error, match=r"was killed \(SIGKILL\)") as caught:
            pipeline.bulk_import(table, write_parquet(tmp_path / "in", *PARTS))
        assert (caught.value.code, pipeline.executor.calls) == (Code.WORKER_KILLED, 3)
    assert table.version == 1


def test_the_files_of_a_killed_task_are_deleted_before_the_pool_ends(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path
) -> None:
    """A pool may live long, and another attempt of the task needs the room."""
    fault = partial(killed_in_its_folder, tmp_path / "noted")
    with Pipeline(lake, launcher=FaultyPool(fault)) as pipeline:
        pipeline.bulk_import(table, write_parquet(tmp_path / "in", *PARTS))
        folder = Path((tmp_path / "noted").read_text())
        assert folder.parent.exists()
        assert not folder.exists()


def test_a_worker_without_a_task_returns_the_memory_that_it_keeps_while_it_has_one() -> None:
    """The next tasks may need more, and other workers have them."""
    with closing(WorkerPool(1)) as pool:
        ((pid, before),) = pool.run([128 * MIB], used_and_freed, tuple[int, int], Stop(), memory_limit_bytes=MIB)
        until(lambda: memory_of(pid) < before - 64 * MIB)
        ((again, _),) = pool.run([MIB], used_and_freed, tuple[int, int], Stop(), memory_limit_bytes=MIB)
        assert again == pid


def test_the_error_of_a_task_that_dies_as_it_fails_is_found_by_another_attempt(
    lake: lakebed.Instance, tmp_path: Path
) -> None:
    """Tasks that did nothing after it are run again as well."""
    table = lake.create_table("plain", PLAIN)
    with Pipeline(lake, launcher=FaultyPool(killed_as_it_fails)) as pipeline:
        with pytest.raises(SchemaMismatchError, match=r"1\.csv.*four"):
            pipeline.bulk_import(table, bad_files(tmp_path / "in"))
        assert pipeline.executor.calls == 2
    assert table.version == 1


@pytest.mark.parametrize("call", [0, 1], ids=["map", "reduce"])
def test_a_full_disk_is_named_and_nothing_is_imported(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path, call: int
) -> None:
    table.set(file_bytes=2**27)
    faults = [None] * call + [partial(on_full_disk, 2_000)]
    with Pipeline(lake, launcher=FaultyPool(*faults)) as pipeline:
        with pytest.raises(StorageError, match=r"cannot write in .*lakebed-") as caught:
            pipeline.bulk_import(table, write_parquet(tmp_path / "in", *PARTS))
        assert caught.value.code == Code.TEMPORARY_STORAGE_FAILED
        assert caught.value.facts["errno"] == errno.EFBIG
        assert not Path(caught.value.facts["folder"]).exists()
    assert table.count(exact=True).rows == 0


def small_pieces(number: int, _value: str) -> Iterator[Piece]:
    for chunk in range(30):
        yield Piece(0, number, chunk, 0, pa.py_buffer(bytes(1000)))


def rows_in(_reducer: int, pieces: Iterator[Piece]) -> int:
    return sum(1 for _ in pieces)


def test_a_disk_that_small_pieces_fill_is_named(lake: lakebed.Instance, table: lakebed.Table) -> None:
    """Also if bytes that could not be written are left when the file is closed."""
    work = MapReduce([""], small_pieces, 1, rows_in, int, 30)
    with closing(FaultyPool(partial(on_full_disk, 10_000))) as pool:
        with pytest.raises(StorageError, match=r"cannot write in .*lakebed-pieces-") as caught:
            pool.exchange.map_reduce(work, TableCall(table, Root(lake.url)))
        assert caught.value.code == Code.TEMPORARY_STORAGE_FAILED
        assert pool.calls == 1


@pytest.mark.parametrize("how", few([signal.SIGKILL, signal.SIGINT], 1))
def test_an_import_that_is_stopped_imports_nothing_and_leaves_nothing(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path, how: signal.Signals
) -> None:
    """After a kill, the next import of the machine deletes what is left."""
    write_parquet(tmp_path / "in", *PARTS)
    home, words = tmp_path / "home", ("import", "t", str(tmp_path / "in"), "--in-process", "--job-id", "monday")
    process = started(lake, home, SLOW, *words)
    until(lambda: (home / "began").exists() and bool((home / "began").read_text()))
    pid = (home / "began").read_text().split()[0]
    assert [name for name in left_in(home) if "-pieces-" in name]
    process.send_signal(how)
    said = process.communicate(timeout=WAIT_S)[1]
    until(lambda: is_gone(pid))
    assert table.version == 1
    if how == signal.SIGINT:
        assert (process.returncode, said.count(STOPPING)) == (130, 1)
        assert left_in(home) == []
    again = started(lake, home, WITHOUT_PYSPARK, *words)
    assert again.wait(WAIT_S) == 0, again.communicate()
    again.communicate()
    assert left_in(home) == []
    assert_holds(table, *PARTS)


def test_imports_need_no_pyspark(lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path) -> None:
    """The command where it is not installed, without an option."""
    write_parquet(tmp_path / "in", *PARTS)
    process = started(lake, tmp_path / "home", WITHOUT_PYSPARK, "import", "t", str(tmp_path / "in"))
    said = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 0, said
    assert_holds(table, *PARTS)
    assert left_in(tmp_path / "home") == []
