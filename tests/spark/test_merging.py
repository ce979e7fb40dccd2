"""Tables with a merge mode under Spark: every way in merges its rows in the order of its input, once."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Aggregate, First, Latest, Schema
from lakebed.jobs.bulk_import import map_inputs
from tests.spark.cases import reads_streams
from tests.spark.test_streaming import forget_last_batch, run_to_the_end

SCHEMA = Schema({"k": "int64"}, {"at": "int64"}, {"a": "int64", "b": pa.field("b", pa.string(), nullable=False)})
COUNTED = Schema({"k": "int64"}, {"at": "int64"}, {"n": "int64", "last": "int64"})


def changes(seed, count, keys=200):
    """Rows of few keys, each with a number of its own in ``a``."""
    rng = random.Random(seed)
    return pa.table(
        {
            "k": [rng.randrange(keys) for _ in range(count)],
            "at": [rng.randrange(3) for _ in range(count)],
            "a": [seed * 1_000_000 + i for i in range(count)],
            "b": [f"{seed}-{i}" for i in range(count)],
        },
        schema=SCHEMA.arrow,
    )


def put(folder, *tables, **options):
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number:03d}.parquet", **options)
    return folder


def merged(mode, *tables):
    """What a dictionary makes of the rows, in their order."""
    held = {}
    for row in (row for table in tables for row in table.to_pylist()):
        key, before = row["k"], held.get(row["k"])
        if isinstance(mode, First):
            held.setdefault(key, row)
        elif before is None or mode.by == "arrival" or row["at"] >= before["at"]:
            held[key] = row
    return [held[key] for key in sorted(held)]


MODES = [Latest(), Latest(by="sort_key"), First()]


@pytest.mark.parametrize("mode", MODES, ids=["latest", "sort_key", "first"])
def test_an_import_merges_the_rows_of_its_files_in_their_order(pipeline, lake, tmp_path, monkeypatch, mode):
    """By several map tasks and reducers; some of the keys are in the table already."""
    monkeypatch.setattr(map_inputs, "TASK_BYTES_MIN", 1)
    table = lake.create_table("t", SCHEMA, split_points=[100], merge=mode, settings={"file_bytes": 2**17})
    before = changes(0, 50, keys=100)
    table.write(before)
    parts = [changes(seed, 8000, keys=6000) for seed in range(1, 4)]
    source = put(tmp_path / "in", *parts, row_group_size=1000)
    report = pipeline.bulk_import(table, source, job_id="once")
    expected = merged(mode, before, *parts)
    assert table.to_arrow().to_pylist() == expected
    assert report.rows == 24_000
    assert min(report.map_tasks, report.reduce_tasks) > 1
    assert report.rows_written == len({row["k"] for part in parts for row in part.select(["k"]).to_pylist()})
    again = pipeline.bulk_import(table, source, job_id="once")
    assert (again.repeated, again.rows, again.rows_written) == (True, 0, 0)
    files = [one.file for held in table.state().references.values() for one in held]
    assert all(file.markers == 0 for file in files)


def test_an_import_of_a_frame_merges_in_the_order_of_its_partitions(pipeline, lake, spark, tmp_path):
    table = lake.create_table("t", SCHEMA, merge=Latest())
    parts = [changes(seed, 3000) for seed in range(4)]
    frame = spark.createDataFrame(parts[0].to_pandas())
    for part in parts[1:]:
        frame = frame.union(spark.createDataFrame(part.to_pandas()))
    assert frame.rdd.getNumPartitions() > 1
    report = pipeline.bulk_import(table, frame)
    assert (report.rows, report.rows_written) == (12_000, 200)
    assert table.to_arrow().to_pylist() == merged(Latest(), *parts)


def test_a_frame_without_a_column_of_counts_that_may_not_be_null_counts_rows(pipeline, lake, spark):
    schema = Schema({"k": "int64"}, values={"n": pa.field("n", pa.int64(), nullable=False)})
    table = lake.create_table("t", schema, merge=Aggregate({"n": "count"}))
    assert pipeline.bulk_import(table, spark.range(100).selectExpr("id % 4 AS k")).rows == 100
    assert table.to_arrow()["n"].to_pylist() == [25] * 4


def test_an_import_into_a_table_that_aggregates_counts_rows(pipeline, lake, tmp_path):
    table = lake.create_table("t", COUNTED, merge=Aggregate({"n": "count", "last": "last"}))
    parts = [pa.table({"k": [1, 2] * 500, "at": [0] * 1000, "last": range(i, i + 1000)}) for i in (0, 5000)]
    quarantined = put(tmp_path / "in", *parts, row_group_size=100)
    for times, how in enumerate([{}, {"quarantine": str(tmp_path / "quarantine")}], 1):
        report = pipeline.bulk_import(table, quarantined, **how)
        assert (report.rows, report.rows_written) == (2000, 2)
        assert [row["n"] for row in table.to_arrow().to_pylist()] == [1000 * times, 1000 * times]
        assert [row["last"] for row in table.to_arrow().to_pylist()] == [5998, 5999]


@pytest.mark.parametrize("method", ["sort", "shuffle"])
def test_an_ingest_job_merges_the_files_of_its_requests_as_they_were_submitted(pipeline, lake, tmp_path, method):
    table = lake.create_table("t", SCHEMA, merge=Latest())
    parts = [changes(seed, 2000) for seed in range(3)]
    # Submitted in an order that is not that of their names.
    for number, name in enumerate(["c", "a", "b"]):
        table.submit(put(tmp_path / name, parts[number]))
    report = pipeline.ingest(table, force=True, method=method)
    assert (report.jobs, report.requests, report.rows_read, report.rows) == (1, 3, 6000, 200)
    assert table.to_arrow().to_pylist() == merged(Latest(), *parts)


# -- the data source ------------------------------------------------------------------------------------------------


def save(spark, instance, rows, **options):
    frame = rows if not isinstance(rows, pa.Table) else spark.createDataFrame(rows)
    given = {"instance": instance.url, "table": "t", **options}
    frame.write.format("lakebed").mode("append").options(**given).save()


def test_a_frame_upserts_changes_and_deletes(spark, lake):
    table = lake.create_table("t", SCHEMA, merge=Latest())
    parts = [changes(seed, 500, keys=50) for seed in range(3)]
    frame = (
        spark.createDataFrame(parts[0]).union(spark.createDataFrame(parts[1])).union(spark.createDataFrame(parts[2]))
    )
    save(spark, lake, frame, operation="upsert")
    assert table.to_arrow().to_pylist() == merged(Latest(), *parts)
    save(spark, lake, pa.table({"k": [1], "at": [9], "b": ["changed"]}), partial="true")
    (row,) = table.get(1).to_pylist()
    assert (row["a"], row["b"]) == (merged(Latest(), *parts)[1]["a"], "changed")
    going = spark.range(0, 40, numPartitions=3).selectExpr("id AS k")
    save(spark, lake, going, operation="delete", commit_id="gone")
    assert table.to_arrow()["k"].to_pylist() == list(range(40, 50))
    save(spark, lake, pa.table({"k": [3], "at": [0], "a": [1], "b": ["back"]}))
    save(spark, lake, going, operation="delete", commit_id="gone")
    assert table.get(3)["b"].to_pylist() == ["back"]


def test_rows_with_kinds_are_applied_in_their_order(spark, lake):
    table = lake.create_table("t", SCHEMA, merge=Latest())
    table.write(changes(0, 100, keys=3))
    cdc = pa.table(
        {
            "op": ["u", "d", "c", "-U", "+U", "d"],
            "k": [0, 1, 7, 7, 7, 2],
            "at": [0, 0, 0, 0, 0, 0],
            "a": [5, None, 6, 6, 8, None],
            "b": ["x", None, "y", "y", "z", None],
        }
    )
    save(spark, lake, spark.createDataFrame(cdc).coalesce(1), row_kind="op")
    assert [(row["k"], row["a"], row["b"]) for row in table.to_arrow().to_pylist()] == [(0, 5, "x"), (7, 8, "z")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"operation": "merge"}, "must be upsert or delete"),
        ({"operation": "delete", "partial": "true"}, "excludes partial"),
        ({"partial": "maybe"}, "must be true or false"),
        ({"row_kind": "op"}, "one column op"),
        ({"partial": "true"}, "merges by Latest"),
        ({"operation": "delete"}, "merges by Latest"),
    ],
)
def test_a_write_that_the_table_does_not_take_is_refused_before_it_runs(spark, lake, options, said):
    latest = "merges by" not in said
    lake.create_table("t", SCHEMA, merge=Latest() if latest else First())
    with pytest.raises(Exception, match=said):
        save(spark, lake, changes(0, 3), **options)


def test_an_unknown_kind_fails_the_write_with_its_row(spark, lake):
    table = lake.create_table("t", SCHEMA, merge=Latest())
    with pytest.raises(Exception, match="column op has 'x', which is no row kind"):
        save(spark, lake, changes(0, 1).append_column("op", [["x"]]), row_kind="op")
    assert table.state().version == 1


@reads_streams
def test_a_stream_of_row_kinds_that_does_its_last_batch_again_ends_with_the_rows_of_its_source(spark, lake, tmp_path):
    fields = {"a": "int64", "b": pa.field("b", pa.string(), nullable=False), "op": "string"}
    source = lake.create_table("from", Schema({"n": "int64"}, values={"k": "int64", "at": "int64", **fields}))
    target = lake.create_table("t", SCHEMA, merge=Latest())
    held = {}

    def start():
        cdc = spark.readStream.format("lakebed").options(instance=lake.url, table="from", maxFilesPerTrigger=1).load()
        sink = cdc.drop("n").writeStream.format("lakebed").options(instance=lake.url, table="t", row_kind="op")
        return sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()

    for seed in range(2):
        rng, rows = random.Random(seed), []
        for number in range(100):
            k, op, value = rng.randrange(20), rng.choice("ccud"), 100 * seed + number
            rows.append({"n": value, "k": k, "at": 0, "a": value, "b": str(value), "op": op})
            held[k] = None if op == "d" else (k, value)
        source.write(pa.Table.from_pylist(rows, schema=source.schema.arrow))
        run_to_the_end(start)
        forget_last_batch(tmp_path / "checkpoint")
    run_to_the_end(start)
    found = [(row["k"], row["a"]) for row in target.to_arrow().to_pylist()]
    assert found == [held[k] for k in sorted(held) if held[k] is not None]
    assert len([row for row in target.history_rows() if row.type == "add_files"]) == 2
