"""Bulk import: every kind of source gives the same rows back, and what does not fit leaves nothing behind."""

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import BadKeyError, DamagedError, Error, NotFoundError, Pipeline, Schema, SchemaMismatchError, UsageError
from lakebed.clock import random_token
from lakebed.spark import spark_exchange
from lakebed.spark.spark_exchange import PIECES
from tests.soaked import few
from tests.spark.cases import SCHEMA, assert_holds, file_of, rows, write_parquet

DATA = [rows(seed, 700) for seed in range(3)]


def data_objects(instance):
    return [o.name for o in instance.storage.list("tables") if "/data/" in o.name]


# -- sources ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", few(["folder", "uri", "glob", "paths"], 2))
def test_parquet_files_come_in_by_folder_glob_path_and_uri(pipeline, table, tmp_path, how):
    paths = write_parquet(tmp_path / "in", *DATA, row_group_size=200)
    source = {
        "folder": tmp_path / "in", "glob": f"{tmp_path}/i?/*.parquet", "paths": paths, "uri": f"file://{tmp_path}/in",
    }[how]  # fmt: skip
    report = pipeline.bulk_import(table, source)
    assert (report.rows, report.source_files, report.version, report.repeated) == (2100, 3, 2, False)
    assert_holds(table, *DATA)


@pytest.mark.parametrize("name", few(["orc", "json", "csv"], 2))
def test_other_formats_come_in_as_spark_writes_them(pipeline, table, spark, tmp_path, name):
    """NaN is a text in JSON, and NUL none: rows without those."""
    plain = DATA[0].filter(pc.is_finite(DATA[0]["v"]))
    plain = plain.filter(pc.invert(pc.match_substring(plain["k"], "\x00")))
    path = file_of(plain, tmp_path / "in.parquet")
    frame = spark.read.parquet(str(path))
    writer = frame.write.option("header", "true").option("timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    getattr(writer, name)(str(tmp_path / name))
    # ORC has no zones.
    casts = ["ts"] if name == "orc" else []
    assert pipeline.bulk_import(table, tmp_path / name, format=name, casts=casts).rows == plain.num_rows
    assert_holds(table, plain)


def test_a_dataframe_comes_in(pipeline, table, spark, tmp_path):
    write_parquet(tmp_path / "in", *DATA)
    frame = spark.read.parquet(str(tmp_path / "in")).repartition(5)
    assert pipeline.bulk_import("t", frame).rows == 2100
    assert_holds(table, *DATA)


def test_a_dataframe_is_computed_once_and_what_was_staged_is_gone(pipeline, table, lake, spark, tmp_path):
    """So one that differs each time (`rand`, `limit`) cannot come in by halves."""
    marks = str(tmp_path)
    before = len(list(tmp_path.iterdir()))

    def marked(batches):
        import tempfile

        tempfile.mkstemp(dir=marks)
        yield from batches

    frame = spark.range(1000, numPartitions=3).selectExpr(
        "cast(rand() * 100 as string) k", "cast(id as int) part", "current_timestamp() ts", "rand() v", "'x' note"
    )
    report = pipeline.bulk_import(table, frame.mapInArrow(marked, frame.schema))
    assert len(list(tmp_path.iterdir())) - before == 3
    assert report.rows == 1000 == table.scan().read_all().num_rows
    assert len(data_objects(lake)) == report.files


def test_rows_go_to_many_reducers_and_partitions_exactly_once(pipeline, lake, tmp_path):
    settings = {"file_bytes": 4096, "row_group_rows": 1000}
    table = lake.create_table("t", SCHEMA, split_points=["a", "b", ("b2", 0), "é"], settings=settings)
    write_parquet(tmp_path / "in", *DATA)
    report = pipeline.bulk_import(table, tmp_path / "in")
    assert report.reduce_tasks > 4
    assert_holds(table, *DATA)
    assert all(table.partitions().column("exact").to_pylist())
    assert set(table.partitions().column("runs").to_pylist()) == {1}


# -- skew, and partitions -------------------------------------------------------------------------------------------


def counted(keys, **columns):
    """A row for each key, whose sort keys count on."""
    count = len(keys)
    whole = {"k": keys, "part": [0] * count, "ts": range(count), "v": [0.5] * count, "note": ["x"] * count}
    return pa.table(whole | columns, schema=SCHEMA.arrow)


@pytest.fixture
def small_files(lake):
    return lake.create_table("s", SCHEMA, settings={"file_bytes": 16_384, "row_group_rows": 1000})


def test_one_row_key_with_a_third_of_the_rows_is_shared_out_between_its_sort_keys(pipeline, small_files, tmp_path):
    """So no reducer has all of it. Its files touch at the key, and the partition keeps it whole."""
    rng = random.Random(1)
    data = counted(["hot" if rng.random() < 0.3 else f"{rng.random()}" for _ in range(8_000)])
    file_of(data, tmp_path / "in.parquet", row_group_size=2000)
    report = pipeline.bulk_import(small_files, tmp_path / "in.parquet")
    files = small_files.files()
    assert max(files.column("rows").to_pylist()) < 3 * 8_000 / report.reduce_tasks
    hot = small_files.schema.codec.encode_key(("hot", 0))
    inside = [f for f in small_files.state().referenced().values() if f.min_key <= hot <= f.max_key]
    assert len(inside) > 2
    assert small_files.partitions().column("runs").to_pylist() == [1]
    assert small_files.get("hot", 0).num_rows == pc.sum(pc.equal(data["k"], "hot")).as_py()
    assert_holds(small_files, data)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_sorted_input_is_shared_out_evenly(pipeline, small_files, tmp_path, order):
    """Each row group holds keys of its own, so only all of them together tell where the quarters lie."""
    data = counted([f"{i:06d}" for i in range(8_000)]).sort_by([("k", order)])
    file_of(data, tmp_path / "in.parquet", row_group_size=1000)
    report = pipeline.bulk_import(small_files, tmp_path / "in.parquet")
    assert report.reduce_tasks > 4
    assert max(small_files.files().column("rows").to_pylist()) < 2 * 8_000 / report.reduce_tasks
    assert_holds(small_files, data)


def test_rows_of_one_partition_of_thousands_have_many_reducers(pipeline, lake, tmp_path):
    settings = {"file_bytes": 16_384, "row_group_rows": 1000}
    table = lake.create_table("s", SCHEMA, split_points=[f"{i:04d}" for i in range(1, 5000)], settings=settings)
    data = counted([f"1234-{i:06d}" for i in range(8_000)])
    file_of(data, tmp_path / "in.parquet")
    report = pipeline.bulk_import(table, tmp_path / "in.parquet")
    assert report.reduce_tasks > 4
    held = table.partitions().filter(pc.field("rows") > 0)
    assert (held.num_rows, held.column("rows").to_pylist(), held.column("runs").to_pylist()) == (1, [8_000], [1])
    assert_holds(table, data)


def test_an_empty_table_has_partitions_of_the_given_size_before_rows_come(pipeline, table, tmp_path):
    """And no file reaches over the end of a partition that is as large as a file."""
    table.set(file_bytes=16_384, row_group_rows=1000)
    data = counted([f"{i * 7919 % 8_000:06d}" for i in range(8_000)])
    file_of(data, tmp_path / "in.parquet")
    report = pipeline.bulk_import(table, tmp_path / "in.parquet", partition_rows=2000)
    held = table.partitions()
    assert report.partitions_split == 1
    assert held.num_rows == 6
    assert max(held.column("rows").to_pylist()) <= 2000
    assert set(held.column("exact").to_pylist()) == {True}
    assert table.files().num_rows == report.files
    assert_holds(table, data)
    with pytest.raises(UsageError, match="partition_rows = 1: must be 2 or more"):
        pipeline.bulk_import(table, tmp_path / "in.parquet", partition_rows=1)


def test_a_coarse_table_of_few_rows_is_cut_by_its_setting(pipeline, table, spark, tmp_path):
    """From a DataFrame, whose sample are the summaries of what was staged. The rows that were there stay."""
    pipeline.bulk_import(table, file_of(counted(["000000", "000500"]), tmp_path / "first.parquet"))
    table.set(split_rows=500)
    data = counted([f"{i:06d}" for i in range(1, 2001)])
    frame = spark.read.parquet(str(file_of(data, tmp_path / "in.parquet")))
    assert pipeline.bulk_import(table, frame).partitions_split == 1
    held = table.partitions().column("rows").to_pylist()
    assert len(held) == 6
    assert max(held) <= 500
    assert_holds(table, data, counted(["000000", "000500"]))


def test_every_type_of_key_and_value_comes_back(pipeline, lake, tmp_path):
    columns = {
        "i": pa.array([1, -(2**31), 2**31 - 1], pa.int32()),
        "l": pa.array([-1, -(2**63), 2**63 - 1], pa.int64()),
        "b": pa.array([b"\xff\x00", b"", b"\x80\x00\x01"]),
        "d": pa.array([0, -719162, 20000], pa.int32()).cast(pa.date32()),
        "n": pa.array([5, -1, 0], pa.timestamp("ns")),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "struct": pa.array([{"x": 1, "y": "é"}, None, {"x": None, "y": ""}]),
        "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "dec": pa.array([None, "1.50", "-0.01"]).cast(pa.decimal128(10, 2)),
        "flag": [True, None, False],
    }
    given = pa.table(columns)
    schema = Schema.from_arrow(given.schema, ["i", "l", "b", "d", "n"])
    table = lake.create_table("t", schema)
    file_of(given, tmp_path / "in.parquet")
    pipeline.bulk_import(table, tmp_path / "in.parquet")
    assert_holds(table, given)


def test_columns_match_by_name_and_narrower_types_widen(pipeline, table, tmp_path):
    narrow = DATA[0].select(["note", "v", "ts", "part", "k"])
    narrow = narrow.set_column(3, "part", narrow["part"].cast(pa.int8())).set_column(
        4, "k", narrow["k"].dictionary_encode()
    )
    file_of(narrow, tmp_path / "in.parquet")
    pipeline.bulk_import(table, tmp_path / "in.parquet")
    assert_holds(table, DATA[0])


# -- nothing, and the same again --------------------------------------------------------------------------------


def test_a_job_id_adds_its_rows_once(pipeline, table, tmp_path):
    path = file_of(DATA[0], tmp_path / "in.parquet")
    first = pipeline.bulk_import(table, path, job_id="monday")
    again = pipeline.bulk_import(table, path, job_id="monday")
    assert (again.repeated, again.version, again.rows) == (True, first.version, 0)
    assert_holds(table, DATA[0])
    pipeline.bulk_import(table, path)
    assert_holds(table, DATA[0], DATA[0])


def test_empty_files_are_fine_and_no_rows_are_no_entry(pipeline, table, tmp_path):
    write_parquet(tmp_path / "none", DATA[0].slice(0, 0), DATA[1].slice(0, 0))
    report = pipeline.bulk_import(table, tmp_path / "none")
    assert (report.rows, report.files, report.version) == (0, 0, None)
    assert table.version == 1
    write_parquet(tmp_path / "some", DATA[0].slice(0, 0), DATA[1])
    assert pipeline.bulk_import(table, tmp_path / "some").rows == 700


def test_an_empty_dataframe_is_fine(pipeline, table, spark, tmp_path):
    path = file_of(DATA[0], tmp_path / "in.parquet")
    assert pipeline.bulk_import(table, spark.read.parquet(str(path)).limit(0), job_id="x").rows == 0
    assert pipeline.bulk_import(table, path, job_id="x").repeated


def test_progress_ends_at_all_rows_and_never_goes_back(pipeline, table, tmp_path):
    progress = []
    write_parquet(tmp_path / "in", *DATA)
    pipeline.bulk_import(table, tmp_path / "in", progress=progress.append)
    done = [step.rows_done for step in progress]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, 2100)
    assert {step.rows_total for step in progress} == {2100}


# -- what does not fit ------------------------------------------------------------------------------------------


def long_key(count):
    return DATA[0].slice(0, count).set_column(0, "k", pa.array(["a"] * (count - 1) + ["k" * 9000]))


def with_null(column):
    values = DATA[0][column].slice(0, 9).to_pylist()
    index = SCHEMA.names.index(column)
    kind = SCHEMA.arrow.field(column).type
    return DATA[0].slice(0, 9).set_column(index, pa.field(column, kind), pa.array([*values[:-1], None], kind))


BAD = {
    "missing column": (DATA[0].drop_columns(["part"]), SchemaMismatchError, "missing column part"),
    "extra column": (DATA[0].append_column("w", DATA[0]["v"]), SchemaMismatchError, "extra column w"),
    "duplicate column": (DATA[0].append_column("v", DATA[0]["v"]), UsageError, "duplicate column v"),
    "wrong type": (
        DATA[0].set_column(1, "part", DATA[0]["part"].cast(pa.string())),
        SchemaMismatchError,
        "column part is string; the table has int32",
    ),
    "null in a key": (with_null("k"), SchemaMismatchError, "column k is null"),
    "null in a sort key": (with_null("ts"), SchemaMismatchError, "column ts is null"),
    "long key": (long_key(9), BadKeyError, "at most 8192 bytes are allowed"),
}


FIRST = ("missing column", "null in a key", "long key")


@pytest.mark.parametrize("what", few([*FIRST, *sorted(BAD.keys() - set(FIRST))], 3))
def test_a_file_that_does_not_fit_is_named_and_nothing_comes_in(pipeline, table, tmp_path, what):
    bad, kind, message = BAD[what]
    write_parquet(tmp_path / "in", DATA[0], DATA[1])
    file_of(bad, tmp_path / "in" / "bad.parquet")
    with pytest.raises(kind, match=message) as caught:
        pipeline.bulk_import(table, tmp_path / "in")
    assert "bad.parquet" in str(caught.value)
    assert table.version == 1


def test_a_dataframe_that_does_not_fit_is_refused(pipeline, table, spark, tmp_path):
    for what in ("missing column", "wrong type", "null in a key"):
        bad, kind, message = BAD[what]
        frame = spark.read.parquet(str(file_of(bad, tmp_path / f"{what}.parquet")))
        with pytest.raises(kind, match=message.replace("string", "string")):
            pipeline.bulk_import(table, frame)
    assert table.version == 1


def test_a_corrupt_file_among_good_ones_is_named(pipeline, table, tmp_path):
    write_parquet(tmp_path / "in", *DATA)
    whole = (tmp_path / "in" / "part-001.parquet").read_bytes()
    (tmp_path / "in" / "part-001.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedError, match=r"part-001\.parquet cannot be read"):
        pipeline.bulk_import(table, tmp_path / "in")
    assert table.version == 1


def test_a_damaged_page_found_by_a_task_is_named_and_nothing_comes_in(pipeline, table, tmp_path):
    """The footer is good, so the driver sees nothing; a value column is not sampled."""
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    path = write_parquet(tmp_path / "in", *DATA, **options)[2]
    column = pq.ParquetFile(path).metadata.row_group(0).column(4)
    data = bytearray((tmp_path / path).read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 1
    (tmp_path / path).write_bytes(data)
    with pytest.raises(DamagedError, match=r"part-002\.parquet cannot be read"):
        pipeline.bulk_import(table, tmp_path / "in")
    assert table.version == 1
    assert_holds(table)


@pytest.mark.parametrize(
    ("source", "format", "refusal"),
    [
        ("nothing/*.parquet", "parquet", (NotFoundError, "nothing matches")),
        ("nothing.csv", "csv", (NotFoundError, "no file or folder")),
        ("in", "xml", (UsageError, "unknown format 'xml'")),
        ([], "parquet", (UsageError, "no source")),
        ([], "csv", (UsageError, "no source")),
    ],
)
def test_a_source_that_is_none_is_refused(pipeline, table, tmp_path, source, format, refusal):  # noqa: PLR0917
    kind, message = refusal
    with pytest.raises(kind, match=message):
        pipeline.bulk_import(table, str(tmp_path / source) if source else source, format=format)
    assert table.version == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k,ts,v,note\na,2020-01-01T00:00:00Z,1,x\n", "missing column part"),
        ("k,part,ts,v,note\na,one,2020-01-01T00:00:00Z,1,x\n", "line 2, column part: 'one' is not int32"),
    ],
)
def test_csv_that_does_not_fit_is_named(pipeline, table, tmp_path, text, message):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(SchemaMismatchError, match=message) as caught:
        pipeline.bulk_import(table, tmp_path / "bad.csv", format="csv")
    assert "bad.csv" in str(caught.value)
    assert table.version == 1


def test_csv_columns_match_by_name_not_by_place(pipeline, table, tmp_path):
    (tmp_path / "in.csv").write_text("note,ts,part,k,v\nhello,2020-01-01T00:00:00Z,7,a,0.5\n")
    pipeline.bulk_import(table, tmp_path / "in.csv", format="csv")
    assert table.get("a", 7).column("note").to_pylist() == ["hello"]


def test_an_instance_in_memory_is_refused(spark):
    with pytest.raises(UsageError, match="is in the memory of this process"):
        Pipeline(lakebed.create(f"memory://{random_token()}"), spark)


def test_an_unknown_table_is_named(pipeline, tmp_path):
    with pytest.raises(NotFoundError, match="no table named 'missing'"):
        pipeline.bulk_import("missing", tmp_path)


# -- tasks that run twice ---------------------------------------------------------------------------------------


def doubled(inner):
    """A map task whose output arrives twice."""

    def run(batches):
        given = list(batches)
        yield from inner(iter(given))
        yield from inner(iter(given))

    return run


def recomputed(inner):
    """One reducer sees a first attempt, the others a second in which the source has other rows."""

    def run(batches):
        import pyarrow as pa

        from lakebed.jobs.bulk_import.shuffle import Account
        from lakebed.jobs.executor import decode, encode

        given = list(batches)
        first, second = list(inner(iter(given))), list(inner(iter(given)))
        yield from (row for row in first if row.column(0)[0].as_py() == 0)
        for row in second:
            if row.column(0)[0].as_py() == 0:
                continue
            if row.column(2)[0].as_py() >= 0:
                yield row
                continue
            account = decode(row.column(4)[0].as_py(), Account)
            changed = encode(replace(account, digest=f"f{account.digest}"))
            yield pa.record_batch([*row.columns[:4], pa.array([changed]), *row.columns[5:]], schema=row.schema)

    return run


def twice(inner):
    """Two attempts of every task; the first is thrown away. Harmless, and so accepted."""

    def run(batches):
        given = list(batches)
        list(inner(iter(given)))
        yield from inner(iter(given))

    return run


@pytest.mark.parametrize(
    ("attempts", "message"),
    [(doubled, "reached a reducer twice"), (recomputed, "ran twice and gave different rows")],
)
def test_output_of_several_attempts_is_refused(pipeline, table, tmp_path, monkeypatch, attempts, message):  # noqa: PLR0917
    table.set(file_bytes=4096)
    real = spark_exchange.map_function
    monkeypatch.setattr(spark_exchange, "map_function", lambda *given: attempts(real(*given)))
    write_parquet(tmp_path / "in", *DATA)
    with pytest.raises(Error, match=message):
        pipeline.bulk_import(table, tmp_path / "in")
    assert_holds(table)


@pytest.mark.parametrize("side", ["map_function", "reduce_function"])
def test_a_task_that_ran_before_does_no_harm(pipeline, table, tmp_path, monkeypatch, side):
    real = getattr(spark_exchange, side)
    monkeypatch.setattr(spark_exchange, side, lambda *given: twice(real(*given)))
    write_parquet(tmp_path / "in", *DATA)
    pipeline.bulk_import(table, tmp_path / "in")
    assert_holds(table, *DATA)


def test_a_worker_that_dies_has_its_task_tried_again(pipeline, table, tmp_path, monkeypatch):
    mark = str(tmp_path / "died")
    real = spark_exchange.map_function

    def dies_once(*given):
        inner = real(*given)

        def run(batches):
            import os

            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield from inner(batches)
            else:
                yield next(inner(batches))
                os._exit(1)

        return run

    monkeypatch.setattr(spark_exchange, "map_function", dies_once)
    write_parquet(tmp_path / "in", *DATA)
    pipeline.bulk_import(table, tmp_path / "in")
    assert_holds(table, *DATA)


def test_the_pieces_are_named_as_the_hooks_above_assume():
    assert PIECES == "reducer int, map int, chunk int, part int, payload binary, address int"
