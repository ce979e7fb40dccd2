"""Ingest jobs of tables that merge rows: rows meet in the order in which their requests were submitted."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Aggregate, First, Latest, Schema, SetMerge
from lakebed.clock import random_token
from lakebed.model.settings import Settings
from lakebed.write.plan import divided, job_of, plan
from tests.pure.ingest.test_plan import MIB, requests
from tests.tables.ingest.cases import in_process, ingested

SCHEMA = Schema({"k": "string"}, {"at": "int64"}, {"v": "int64"})


def table_of(mode, **settings):
    lake = lakebed.create(f"memory://{random_token()}")
    return lake.create_table("t", SCHEMA, merge=mode, settings=settings)


def put(folder, *files):
    """A file for each list of values, all of the keys a and b; names are in the opposite order."""
    folder.mkdir(exist_ok=True)
    paths = []
    for number, values in enumerate(files):
        paths.append(folder / f"{len(files) - number:03d}.parquet")
        keys = ["a", "b"] * len(values)
        pq.write_table(pa.table({"k": keys, "at": [0] * len(keys), "v": [v for v in values for _ in "ab"]}), paths[-1])
    return paths


def values(table):
    return table.to_arrow()["v"].to_pylist()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(Latest(), 6), (Latest(by="sort_key"), 6), (First(), 1), (Aggregate({"v": "sum"}), 21)],
    ids=str,
)
def test_rows_of_a_job_meet_in_the_order_of_its_requests_and_rows(tmp_path, mode, expected):
    table = table_of(mode)
    for path in put(tmp_path, [1, 2], [3, 4], [5, 6]):
        table.submit(path)
    report = ingested(table)
    assert (report.jobs, report.rows_read, report.rows, report.files) == (1, 12, 2, 1)
    assert values(table) == [expected, expected]


def test_jobs_are_committed_in_the_order_of_their_requests(tmp_path):
    table = table_of(Latest(), ingest_bytes_max=1024 * 1024)
    for path in put(tmp_path, *([number] for number in range(4))):
        table.submit(path)
    jobs = [job_of([request]) for request in plan(table.state().open_requests.values(), Settings(), 0).waiting]
    assert len(jobs) == 4
    from lakebed.upkeep.ingest_jobs import ingest
    from lakebed.write.plan import IngestPlan

    report = ingest(table, IngestPlan(tuple(jobs), ()), in_process(table), cores=2)
    assert (report.jobs, report.rows_read, report.rows) == (4, 8, 8)
    assert values(table) == [3, 3]


def test_where_order_matters_a_later_request_never_goes_into_an_earlier_job():
    def jobs(text, *, ordered):
        found = plan(requests(text), Settings(ingest_bytes_max=5 * MIB), 0, force=True, ordered=ordered)
        return " ".join("".join(job.ids) for job in found.jobs)

    assert jobs("a:3 b:3 c:2 d:1", ordered=False) == "ac bd"
    assert jobs("a:3 b:3 c:2 d:1", ordered=True) == "a bc d"
    assert jobs("a:1 b:1! c:1 d:1", ordered=True) == "a b cd"
    assert list(map(len, jobs(" ".join(["a:0"] * 101), ordered=True).split())) == [100, 1]


def test_a_job_that_is_divided_keeps_the_order_of_its_halves():
    job = job_of(requests("a:1 b:1 c:1 d:1"))
    assert ["".join(half.ids) for half in divided(job, None)] == ["ab", "cd"]


def test_requests_from_before_a_change_of_the_mode_are_merged_by_the_new_one(tmp_path):
    table = table_of(Latest())
    for path in put(tmp_path, [1], [2]):
        table.submit(path)
    table.alter(SetMerge(First()))
    report = ingested(table)
    assert (report.errors, report.waiting, values(table)) == ((), 0, [1, 1])


def test_a_job_whose_mode_is_changed_while_it_runs_is_run_again(tmp_path):
    table = table_of(Latest())
    for path in put(tmp_path, [1], [2]):
        table.submit(path)
    run, changed = in_process(table), []

    def execute(tasks):
        made = run(tasks)
        if not changed:
            changed.append(table.alter(SetMerge(First())))
        return made

    report = ingested(table, execute)
    assert (report.errors, report.waiting, values(table)) == ((), 0, [1, 1])


def test_files_that_are_submitted_have_whole_rows(tmp_path):
    """A column that a file lacks is null: a request is an upsert."""
    table = table_of(Latest())
    table.write(pa.table({"k": ["a"], "at": [0], "v": [1]}))
    pq.write_table(pa.table({"k": ["a"], "at": [0]}), tmp_path / "a.parquet")
    table.submit(tmp_path / "a.parquet")
    ingested(table)
    assert values(table) == [None]


def test_counts_are_added_for_files_without_the_column(tmp_path):
    schema = Schema({"k": "string"}, values={"n": "int64"})
    table = lakebed.create(f"memory://{random_token()}").create_table("t", schema, merge=Aggregate({"n": "count"}))
    pq.write_table(pa.table({"k": ["a", "a", "b"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": ["b"], "n": [10]}), tmp_path / "b.parquet")
    table.submit(tmp_path)
    report = ingested(table)
    assert (report.rows_read, report.rows) == (4, 2)
    assert table.to_arrow().to_pylist() == [{"k": "a", "n": 2}, {"k": "b", "n": 11}]
