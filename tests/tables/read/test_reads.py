"""What is particular to each read of a table: what it takes, what it refuses, and what it lets go of."""

import datetime as dt
import gc
import os
import signal
import threading

import pyarrow as pa
import pytest

import lakebed
from lakebed import BadKeyError, DamagedError, KeyRange, NotFoundError, NotRetainedError, Schema, UsageError, clock
from lakebed.files.parquet import open_files
from lakebed.files.parquet.read_cache import READ_CACHE_BYTES, ReadCache
from lakebed.log.backends.objects import ObjectLogs
from lakebed.model.state.transactions import ProposeSplit
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.request import ReadLimits
from lakebed.read.rows.slices import reversed_rows
from lakebed.table.table import Table
from lakebed.upkeep.retention.run import collect_garbage
from tests.clocks import set_clock
from tests.machine import set_temporary_folder
from tests.soaked import each_once
from tests.tables.cases import compact

SCHEMA = Schema({"k": "string", "n": "int64"}, {"s": "int64"}, {"v": "string"})
AT_ONCE = {"history_s": 0}


def rows(letters, first=0):
    kept = [{"k": letter, "n": i, "s": first + i, "v": letter * 3} for i, letter in enumerate(letters)]
    return pa.Table.from_pylist(kept, SCHEMA.arrow)


@pytest.fixture
def table(memory_lake):
    """Three files that overlap, in two partitions."""
    table = memory_lake.create_table("t", SCHEMA, split_points=[("m",)], settings=AT_ONCE)
    for first, letters in enumerate(("azmk", "bymk", "ozzz")):
        table.write(rows(letters, 10 * first))
    return table


def letters(found):
    return "".join(found.column("k").to_pylist())


# -- predicates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("m > 3", "No field named m"),
        ("v", "non-boolean"),
        ("K = 'a'", 'No field named "K"'),
        ("", "text is empty"),
        ("n >", "expected"),
        ("n > 3; DROP TABLE t", "error at ';'"),
        ("SELECT 1", "SELECT 1"),
        ("n IN (SELECT 1)", "more than a row"),
        ("EXISTS (SELECT 1)", "more than a row"),
        ("random() < 0.5", "Invalid function 'random'"),
        ("now() > '2020-01-01'", "Invalid function 'now'"),
        ("count(*) > 3", "Invalid function 'count'"),
        ("n = 'abc'", "Cannot cast string 'abc'"),
        (7, "must be a predicate in SQL"),
    ],
)
def test_what_is_no_predicate_over_a_row_is_refused_before_anything_is_read(table, where, says):
    with pytest.raises(UsageError, match="(?i)" + says.replace("(", r"\(").replace(")", r"\)")):
        table.scan(where=where)


def test_an_unknown_column_in_a_predicate_is_answered_with_the_columns(table):
    with pytest.raises(UsageError, match="Its columns are k, n, s, v"):
        table.scan(where="m > 3")


def test_a_predicate_may_name_columns_that_are_not_requested_and_none_at_all(table):
    assert table.scan(where="s = 10 -- and the rest\n OR 1 = 1 AND n = 7", columns=["v"]).read_all().num_rows == 1
    assert table.scan(where="true", columns=["v"]).read_all().num_rows == 12
    assert table.scan(where="null").read_all().num_rows == 0


@pytest.mark.parametrize("reverse", [False, True])
def test_files_whose_keys_no_row_that_passes_can_have_are_not_opened(tmp_path, reverse):
    """One of the two is lost, and only a read that needs it fails."""
    table = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA)
    table.write(rows("ab"))
    kept = set(table.state().referenced())
    table.write(rows("yz"))
    (lost,) = (path for path in (tmp_path / "lake").rglob("*.parquet") if path.stem not in kept)
    lost.unlink()
    found = table.scan(where="k = 'a' OR k = 'b' AND n >= 0", reverse=reverse).read_all()
    assert letters(found) == ("ba" if reverse else "ab")
    assert letters(table.scan(KeyRange(("b",)), where="k < 'c'").read_all()) == "b"
    with pytest.raises(NotFoundError, match=lost.stem):
        table.scan(where="n >= 0", reverse=reverse).read_all()


@pytest.mark.parametrize("ask", ["scan", "count", "files", "to_arrow", "remove"])
def test_what_is_no_range_of_keys_is_refused(table, ask):
    version = table.version
    with pytest.raises(UsageError, match="key range = 'a': must be a KeyRange"):
        getattr(table, ask)("a")
    assert table.state().version == version


def test_a_limit_counts_the_rows_that_pass(table):
    assert table.scan(where="k = 'z'", limit=3, columns=["s"]).read_all().column("s").to_pylist() == [1, 21, 22]


@pytest.fixture(params=["in memory", "by the engine", "in levels"])
def way(request):
    """Each way that a predicate is asked of rows."""
    return {
        "in memory": ReadLimits(),
        "by the engine": ReadLimits(page_rows=-1),
        "in levels": ReadLimits(page_rows=-1, fan_in=2),
    }[request.param]


def test_a_row_on_which_a_predicate_fails_is_its_fault_and_no_file_s(way, table):
    table.reader.limits = way
    with pytest.raises(UsageError, match=r"cannot evaluate predicate '1 / n > 0': .*[Dd]ivide by zero"):
        table.scan(where="1 / n > 0").read_all()


@each_once(where=["s >= 0", "k % 2 = 0", "k IN (3, 41, 45, 95, 777) OR k > 500"], reverse=[False, True])
def test_a_predicate_adds_no_rows_between_the_ranges_that_are_asked_for(way, memory_lake, where, reverse):
    """Of many small ranges a partition is read through, since a predicate is asked of each row; no range is."""
    table = memory_lake.create_table("u", Schema({"k": "int64"}, values={"s": "int64"}), split_points=[(333,)])
    table.reader.limits = way
    table.write(pa.table({"k": range(1000), "s": range(1000)}))
    ranges = [KeyRange((begin,), (begin + 10,)) for begin in range(0, 1000, 40)]
    inside = {key for begin in range(0, 1000, 40) for key in range(begin, begin + 10)}
    wanted = [key for key in table.scan(where=where).read_all().column("k").to_pylist() if key in inside]
    found = table.scan(*ranges, where=where, reverse=reverse).read_all().column("k").to_pylist()
    assert found == (wanted[::-1] if reverse else wanted)


@pytest.mark.parametrize(
    "where",
    [
        "coalesce(n, 0) = 1",
        "nvl(n, 0) = 1",
        "nvl2(n, n, 0) = 1",
        "arrow_cast(n, 'Int32') = 1",
        "extract(year FROM to_timestamp(n)) = 1970 AND n = 1",
    ],
)
def test_a_predicate_may_have_functions_that_the_engine_makes_into_others(table, where):
    assert letters(table.scan(where=where).read_all()) == "yzz"


@pytest.mark.parametrize(
    "where", ["lower(k) = k", "k = left(v, 1) AND k = lower(k)", "n + 0 = n -- all", "s = n OR s != n"]
)
def test_a_predicate_may_hold_that_two_columns_are_equal(way, table, where):
    """The engine would conclude how rows are sorted, and find its own plan wrong."""
    table.reader.limits = way
    assert letters(table.scan(where=where).read_all()) == "abkkmmoyzzzz"


@pytest.mark.parametrize("time", ["to_timestamp('1970-01-01T01:00:01')", "TIMESTAMPTZ '1970-01-01 01:00:01'"])
def test_a_time_of_a_predicate_is_in_utc_as_it_is_in_statements(way, memory_lake, time):
    """Without a zone it would be taken for one in Berlin, an hour earlier."""
    kind = pa.timestamp("us", "Europe/Berlin")
    table = memory_lake.create_table("times", Schema({"k": kind}))
    table.reader.limits = way
    for _ in range(3):
        table.write(pa.table({"k": pa.array([1_000_000, 3_601_000_000], kind)}))
    found = table.scan(where=f"k = {time}").read_all()
    assert found.column("k").cast(pa.int64()).to_pylist() == [3_601_000_000] * 3
    assert memory_lake.sql(f"SELECT k FROM times WHERE k = {time}").read_all().num_rows == 3


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        ("1970-01-01 00:00:02", {"=": [2], "<": [1], "<=": [1, 2], ">": [3], ">=": [2, 3]}),
        ("1970-01-01 00:00:02.5", {"=": [], "<": [1, 2], "<=": [1, 2], ">": [3], ">=": [3]}),
    ],
)
def test_a_second_is_compared_exactly_though_parquet_has_none(way, memory_lake, at, wanted):
    """The engine would make of half a second the whole one that a column of seconds can have."""
    kind = pa.timestamp("s")
    table = memory_lake.create_table("seconds", Schema({"key": kind}, {"sorted": kind}, {"value": kind}))
    table.reader.limits = way
    for _ in range(3):
        table.write(pa.table([pa.array([1, 2, 3], kind)] * 3, names=["key", "sorted", "value"]))
    for operator, seconds in wanted.items():
        for name in table.schema.names:
            found = table.scan(where=f"{name} {operator} '{at}'", columns=["value"]).read_all()
            assert found.column("value").cast(pa.int64()).to_pylist() == [
                second for second in seconds for _ in range(3)
            ]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_predicate_is_evaluated_over_parts_of_one_file_and_of_several(memory_lake, reverse):
    """Files that overlap are read with their key columns, others without: the predicate waits for rows of both."""
    table = memory_lake.create_table("parts", Schema({"k": "int64"}, {"s": "int64"}, {"v": "int64", "n": "int64"}))
    for begin in (0, 100, 200, 200, 300):
        keys = range(begin, begin + 10)
        table.write(pa.table({"k": keys, "s": [0] * 10, "v": keys, "n": [3] * 10}))
    ranges = [KeyRange((begin,), (begin + 2,)) for begin in (0, 100, 200, 300)]
    found = table.scan(*ranges, where="n % 3 = 0", columns=["v"], reverse=reverse).read_all().column("v").to_pylist()
    assert found == sorted([0, 1, 100, 101, 200, 200, 201, 201, 300, 301], reverse=reverse)


def test_a_predicate_on_the_key_reads_few_pages_of_a_wide_read(memory_lake):
    """The engine prunes by it: of 40 pages one or two are decoded."""
    table = memory_lake.create_table(
        "wide", Schema({"k": "int64"}, values={"v": "string"}), settings={"page_rows": 100}
    )
    table.write(pa.table({"k": range(4000), "v": ["x" * 50] * 4000}))
    table.reader.limits = ReadLimits(page_rows=-1)
    assert table.scan(where="k = 1234").read_all().num_rows == 1
    reader = table.reader
    (opened,) = (reader._files.open(file, table.schema) for file in table.state().files_of(1))
    from lakebed.engine.predicate import check_where
    from lakebed.model.keys import ALL_KEYS
    from lakebed.read.rows.request import ReadRequest

    request = ReadRequest(table.schema, ALL_KEYS, ("v",), None, check_where("k = 1234", table.schema.arrow))
    drawing = reader.engine().frame([opened], None, request).execution_plan().display_indent()
    assert "k_max@1 >= 1234" in drawing or "pruning_predicate=" in drawing


# -- many keys ----------------------------------------------------------------------------------------------------


def test_keys_may_come_as_tuples_or_anything_arrow(table):
    keys = [("z", 1), ("a", 0), ("a", 0), ("absent", 3)]
    wanted = table.get_many(keys)
    assert letters(wanted) == "azz"
    columns = {"n": pa.array([n for _, n in keys], pa.int16()), "k": [k for k, _ in keys]}
    for given in (
        pa.table(columns),
        pa.table(columns).to_batches()[0],
        pa.table({**columns, "k": pa.array(columns["k"]).dictionary_encode()}),
        pa.table({**columns, "k": pa.array(columns["k"], pa.large_string())}),
        pa.table(columns).to_struct_array().chunk(0),
        iter(keys),
        [list(key) for key in keys],
    ):
        assert table.get_many(given).equals(wanted)
    assert table.get_many([]).equals(SCHEMA.arrow.empty_table())


def test_keys_of_one_field_may_be_plain_values_or_an_array(memory_lake):
    table = memory_lake.create_table("days", Schema({"day": "date32"}, values={"v": "int64"}))
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=n) for n in range(5)]
    table.write(pa.table({"day": days, "v": range(5)}))
    for given in (days[3:0:-2], pa.array(days[1:4:2]), [(days[1],), days[3]]):
        assert table.get_many(given, columns=["v"]).column("v").to_pylist() == [1, 3]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ([("a", 0, 1)], "a key has 2 values"),
        ([("a",)], "a key has 2 values"),
        ([("a", "0")], "key field n"),
        ([("a", 0), ("b", None)], "cannot be null"),
        ([("a", 2**63)], "does not fit"),
        ([("a", True)], "key field n"),
        ([("\ud800", 1)], "unpaired surrogate"),
        (["ab"], "a key of several fields is a tuple"),
        ("ab", "a list of tuples"),
        (7, "a list of tuples"),
        (pa.array(["a"]), "give a table with these columns"),
        (pa.table({"k": ["a"]}), "no column n"),
        (pa.table({"k": ["a"], "n": ["0"]}), "the keys have string"),
        (pa.table({"k": ["a"], "n": pa.array([None], pa.int64())}), "cannot be null"),
        (pa.table({"k": ["a"], "n": pa.array([2**63], pa.uint64())}), "key field n is int64"),
    ],
)
def test_what_is_no_list_of_keys_is_refused(table, keys, says):
    with pytest.raises(BadKeyError, match=says):
        table.get_many(keys)


def test_nested_columns_come_with_many_keys_and_in_samples(memory_lake):
    """Their pages need not end where others do: the row group is read."""
    schema = Schema({"k": "int64"}, values={"tags": pa.list_(pa.string()), "v": "int64"})
    table = memory_lake.create_table("nested", schema)
    table.write(pa.table({"k": range(100), "tags": [[str(n)] * (n % 3) for n in range(100)], "v": range(100)}))
    found = table.get_many([71, 5, 700])
    assert found.to_pylist() == [{"k": 5, "tags": ["5"] * 2, "v": 5}, {"k": 71, "tags": ["71"] * 2, "v": 71}]
    for row in table.sample(9, seed=1).to_pylist():
        assert row["tags"] == [str(row["k"])] * (row["k"] % 3)


def test_a_field_that_was_added_is_null_and_a_widened_one_is_wide(memory_lake):
    table = memory_lake.create_table("old", Schema({"k": "int64"}, values={"v": "int32"}))
    table.write(pa.table({"k": [1, 2], "v": pa.array([10, 20], pa.int32())}))
    table.alter(lakebed.WidenField("v", "int64"), lakebed.AddField("w", "string"))
    assert table.get_many([2]).to_pylist() == [{"k": 2, "v": 20, "w": None}]
    assert table.sample(1, seed=1).num_rows == 1
    assert table.scan(where="v = 20 AND w IS NULL", reverse=True).read_all().column("k").to_pylist() == [2]


def test_many_keys_share_the_files_of_partitions_in_batches(table):
    table.reader.limits = ReadLimits(files_at_once=1)
    assert letters(table.get_many([("z", n) for n in range(5)] + [("a", 0)])) == "azzzz"


# -- counts and samples ------------------------------------------------------------------------------------------


def test_a_range_that_cuts_a_large_file_is_counted_by_its_summary_or_exactly(memory_lake, small_summaries):
    table = memory_lake.create_table("large", Schema({"k": "int64"}, values={"v": "int64"}))
    table.write(pa.table({"k": range(20_000), "v": range(20_000)}))
    asked = KeyRange((7,), (12_345,))
    assert (table.count(), table.count(asked, exact=True).rows) == (lakebed.Count(20_000, exact=True), 12_338)
    estimate = table.count(asked)
    assert not estimate.exact
    assert estimate.rows_min <= 12_338 <= estimate.rows_max
    assert estimate.rows_max - estimate.rows_min <= 2 * 40
    assert table.count(KeyRange((5,), (5,))) == lakebed.Count(0, exact=True)


def test_a_partition_whose_share_is_an_estimate_is_counted_exactly_on_demand(memory_lake):
    table = memory_lake.create_table("cut", Schema({"k": "int64"}, values={"v": "int64"}))
    table.write(pa.table({"k": range(20_000), "v": range(20_000)}))
    table.commit(ProposeSplit({1: (table.schema.codec.encode((1234,)),)}))
    asked = KeyRange((), (1234,))
    assert not any(table.partitions().column("exact").to_pylist())
    # A file this small has no summary, so its page is read in any case.
    assert table.count(asked) == table.count(asked, exact=True) == lakebed.Count(1234, exact=True)
    assert table.sample(1000, seed=5).num_rows == 1000


def test_every_row_is_as_likely_as_any_other(memory_lake):
    """12 rows in three files and two partitions; 4 of them, 600 times: each about 200 times."""
    table = memory_lake.create_table("fair", SCHEMA, split_points=[("m",)])
    for first, some in enumerate(("azmk", "bymk", "ozzz")):
        table.write(rows(some, 10 * first))
    drawn = [version for seed in range(600) for version in table.sample(4, seed=seed).column("s").to_pylist()]
    counts = {version: drawn.count(version) for version in set(drawn)}
    assert len(counts) == 12
    # The deviation is 11.5: beyond six of it by chance once in 10^9 rows.
    assert all(131 <= count <= 269 for count in counts.values()), counts


def test_a_sample_of_more_than_there_is_is_all_of_it(table):
    assert table.sample(1000).equals(table.scan().read_all())
    assert table.sample(0).num_rows == 0


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "error", "says"),
    [
        (lambda t: t.get("a"), BadKeyError, "a key has 2 values"),
        (lambda t: t.get("a", 1, 2), BadKeyError, "a key has 2 values"),
        (lambda t: t.get("a", "1"), BadKeyError, "key field n"),
        (lambda t: t.scan(KeyRange(("b",), ("a",))), BadKeyError, "above its maximum"),
        (lambda t: t.count(KeyRange(("b",), ("a",))), BadKeyError, "above its maximum"),
        (lambda t: t.scan("a"), UsageError, "KeyRange.prefix"),
        (lambda t: t.count("a"), UsageError, "KeyRange.prefix"),
        (lambda t: t.scan(columns=["k", "x"]), UsageError, "x"),
        (lambda t: t.get_many([("a", 1)], columns=["x"]), UsageError, "x"),
        (lambda t: t.sample(3, columns=["x"]), UsageError, "x"),
        (lambda t: t.scan(limit=-1), UsageError, "limit = -1: must be a whole number, 0 or more"),
        (lambda t: t.scan(limit=1.5), UsageError, "limit = 1.5"),
        (lambda t: t.sample(-1), UsageError, "rows = -1"),
        (lambda t: t.get("a", 1, at_least=-1), UsageError, "at_least = -1"),
        (lambda t: t.get("a", 1, at_least="7"), UsageError, "at_least = '7'"),
    ],
)
def test_what_means_nothing_is_refused_at_once(table, read, error, says):
    with pytest.raises(error, match=says):
        read(table)


def test_an_empty_range_and_limit_0_have_the_schema_and_no_rows(table):
    for stream in (table.scan(KeyRange(("b",), ("b",))), table.scan(limit=0), table.scan(limit=0, reverse=True)):
        assert stream.read_all().equals(SCHEMA.arrow.empty_table())


def test_a_damaged_page_is_named_by_file_row_group_and_column(tmp_path):
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", SCHEMA)
    table.write(rows("abc" * 50))
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    content = bytearray(file.read_bytes())
    content[200:230] = b"\xff" * 30
    file.write_bytes(content)
    for read in (
        lambda: table.scan().read_all(),
        lambda: table.get_many([("a", 0), ("b", 1)]),
        lambda: table.get("a", 0),
    ):
        with pytest.raises(DamagedError, match=f"{file.stem}.*row group 0 column [knsv] cannot be read") as raised:
            read()
        assert (raised.value.row_group, raised.value.column in SCHEMA.names) == (0, True)


def test_a_file_that_vanished_past_the_gc_delay_is_named_with_the_remedy(memory_lake):
    table = memory_lake.create_table("t", SCHEMA, settings=AT_ONCE)
    table.write(rows("abc"))
    table.write(rows("abd", 10))
    before = in_another_process(table).snapshot()
    compact(table)
    collect_garbage(table)
    for read in (
        lambda: before.scan(reverse=True).read_all(),
        lambda: before.get_many([("a", 0)]),
        lambda: before.sample(1),
        lambda: before.count(KeyRange(("a",), ("b",)), exact=True),
    ):
        with pytest.raises(NotRetainedError, match=r"Table\.pin"):
            read()


# -- freshness ---------------------------------------------------------------------------------------------------


def in_another_process(table):
    """The same table as a process has it that knows nothing yet."""
    return Table(table.id, table.name, table.storage, ObjectLogs(table.storage), dict)


def test_a_read_waits_for_a_number_that_another_process_tells_of(table):
    other = in_another_process(table)
    assert other.get("q", 0, max_staleness=1e9).num_rows == 0
    version = table.write(rows("q", 50))
    assert other.get("q", 0, max_staleness=1e9).num_rows == 0
    assert other.get("q", 0, max_staleness=1e9, at_least=version).num_rows == 1
    writer = threading.Timer(0.05, lambda: table.write(rows("r", 60)))
    writer.start()
    assert letters(other.scan(KeyRange(("r",), ("s",)), at_least=version + 1).read_all()) == "r"
    writer.join()


def test_a_number_that_does_not_come_is_an_error(table, monkeypatch):
    slept = []
    set_clock(monkeypatch, sleep=slept.append, monotonic_s=lambda: sum(slept))
    with pytest.raises(NotFoundError, match=f"versions up to {table.version}, and version 99 did not appear"):
        table.get_many([("a", 0)], at_least=99)
    assert slept


def test_a_reader_that_holds_a_pin_reads_on_over_compactions_and_collections(memory_lake):
    table = memory_lake.create_table("t", SCHEMA, settings=AT_ONCE)
    table.write(rows("abc"))
    table.write(rows("bcd", 10))
    with table.pin() as held:
        stream = held.scan()
        compact(table)
        collect_garbage(table)
        table.remove(KeyRange())
        collect_garbage(table)
        assert letters(stream.read_all()) == "abbccd"
        assert letters(held.get_many([("a", 0), ("b", 0)])) == "ab"
        assert letters(held.scan(reverse=True).read_all()) == "dccbba"
        assert held.count() == lakebed.Count(6, exact=True)
    assert table.count().rows == 0


# -- streams -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_a_stream_that_is_closed_lets_its_files_go_and_reads_no_more(reverse):
    """Although the stream itself is still held."""
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", SCHEMA)
    table.versions.reader = Reader(table.storage, table.id, lambda _: True, cache=ReadCache(0))
    table.reader.limits = ReadLimits(page_rows=-1)
    table.write(rows("ab" * 10_000))
    before = set(open_files.copies_folder().iterdir())
    stream = table.scan(reverse=reverse)
    stream.read_next_batch()
    (copy,) = set(open_files.copies_folder().iterdir()) - before
    stream.close()
    gc.collect()
    assert not copy.exists()
    with pytest.raises(UsageError, match="closed"):
        stream.read_next_batch()
    stream.close()


def test_a_stream_is_what_others_take_as_arrow(table):
    assert pa.table(table.scan()).equals(table.scan().read_all())
    with table.scan() as stream:
        assert sum(batch.num_rows for batch in stream) == 12


def test_ctrl_c_ends_a_scan_between_batches(memory_lake):
    """And is not reported as damage."""
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows("ab" * 30_000))

    def read_on():
        while True:
            table.scan(where="n >= 0").read_all()

    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        read_on()
    timer.join()
    assert table.scan(where="n = 5").read_all().num_rows == 1


def test_rows_that_do_not_fit_memory_are_turned_by_way_of_disk(tmp_path, monkeypatch):
    set_temporary_folder(monkeypatch, tmp_path)
    batches = [pa.record_batch({"n": pa.array(range(10 * i, 10 * i + 10))}) for i in range(20)]
    found = reversed_rows(batches, 200)
    last = [next(found)]
    assert list(tmp_path.iterdir())
    assert pa.Table.from_batches([*last, *found]).column("n").to_pylist() == list(range(199, -1, -1))
    assert not list(tmp_path.iterdir())


def test_a_limit_finds_rows_behind_pages_that_only_seem_to_have_some(memory_lake):
    """A page in which the first field changes tells nothing of the second: here the first two might have the key."""
    table = memory_lake.create_table("t", Schema({"k": "string", "n": "int64"}), settings={"page_rows": 100})
    keys = [*(("", n) for n in range(50)), *(("a", n) for n in range(100)), *(("b", n) for n in range(50))]
    table.write(pa.table({"k": [k for k, _ in keys], "n": [n for _, n in keys]}))
    found = table.scan(KeyRange(("a", 90), ("b",)), limit=3).read_all()
    assert found.column("n").to_pylist() == [90, 91, 92]


# -- decoded pages -------------------------------------------------------------------------------------------------


def test_a_get_of_a_page_that_is_cached_reads_no_file(tmp_path):
    """Neither the page nor the filter, of keys that are there and of one that is not."""
    table = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA)
    table.write(rows("acegi"))
    assert letters(table.get("c", 1)) == "c"
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    file.unlink()
    assert [letters(table.get(k, n)) for k, n in (("a", 0), ("i", 4), ("d", 1), ("c", 2))] == ["a", "i", "", ""]
    assert letters(table.scan(KeyRange("c", "h")).read_all()) == "ceg"
    lakebed.set_read_cache_bytes(0)
    lakebed.set_read_cache_bytes(READ_CACHE_BYTES)
    with pytest.raises(NotFoundError, match="missing"):
        table.get("c", 1)


def test_a_page_in_the_cache_counts_as_a_page_without_bytes(tmp_path):
    table = lakebed.create(tmp_path / "lake").create_table("t", SCHEMA)
    table.write(rows("acegi"))
    first, second = table.explain("c", 1), table.explain("c", 1)
    assert (first.pages, second.pages) == (4, 4)
    assert first.size_bytes > second.size_bytes == 0
