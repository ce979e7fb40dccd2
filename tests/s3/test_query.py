"""Files too large to fetch whole: they are read by ranges, narrow reads page by page, wide ones by the engine."""

import threading

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema
from lakebed.errors import DamagedError, NotFoundError
from lakebed.files.parquet.open_files import FetchLimits
from lakebed.files.parquet.read_cache import READ_CACHE_BYTES
from lakebed.model.files import data_name
from lakebed.read.rows.request import ReadLimits
from lakebed.upkeep.splitting.run import split

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "int64", "w": "string"})
ROWS = 20_000


@pytest.fixture
def table(s3_server):
    """Opened anew, with no file small enough to fetch whole, nor to come with its footer."""
    instance = lakebed.create(s3_server.new_bucket() + "/lake", storage_options=s3_server.storage_options)
    made = instance.create_table("t", SCHEMA)
    for part in range(2):
        numbers = range(part, ROWS, 2)
        made.write(
            pa.table(
                {
                    "k": [f"key-{n:06d}" for n in numbers],
                    "n": pa.array(numbers, pa.int64()),
                    "v": pa.array(numbers, pa.int64()),
                    "w": [f"{n * 7919:040d}" for n in numbers],
                }
            )
        )
    table = lakebed.open(instance.url, storage_options=s3_server.storage_options).table("t")
    table.reader._files.limits = FetchLimits(copy_bytes=0, tail_bytes=8 * 1024)
    return table


def test_rows_come_back_by_ranges(s3_server, table):
    assert table.get("key-000123").column("v").to_pylist() == [123]
    assert table.get("no such key").num_rows == 0
    found = table.scan(KeyRange("key-000100", "key-015000"), columns=["n"]).read_all()
    assert found.column("n").to_pylist() == list(range(100, 15_000))
    assert table.scan(limit=3).read_all().column("n").to_pylist() == [0, 1, 2]


def data_requests(s3_server):
    return [r for r in s3_server.requests if r.key.endswith(".parquet")]


def side_by_side(s3_server, *endings):
    """From now on a request with one of these endings is answered when each has one."""
    begun = threading.Barrier(len(endings))

    def wait(request):
        if request.key.endswith(endings):
            begun.wait(timeout=120)

    s3_server.requests.clear()
    s3_server.spoil = wait
    return begun


def test_a_warm_get_takes_the_pages_of_the_file_that_has_the_key_beside_two_requests_of_the_log(s3_server, table):
    """Columns that lie within a mebibyte come in one request; in a large row group it is one for each, side by side."""
    table.get("key-000001")
    table.get("key-000003")
    for key in ("key-010001", "key-010002"):
        begun = side_by_side(s3_server, ".parquet", f"{table.state().version + 1:020d}.ndjson")
        assert table.get(key).num_rows == 1
        assert len(data_requests(s3_server)) == 1
        assert len(s3_server.requests) == 3
        assert not begun.broken
        s3_server.spoil = None
    s3_server.requests.clear()
    assert table.get("key-010003x").num_rows == 0
    assert len(data_requests(s3_server)) == 0


def test_what_was_read_beside_the_log_is_read_again_if_that_has_something_newer(s3_server, table):
    assert table.get("key-000001").column("v").to_pylist() == [1]
    other = lakebed.open(table.storage.url, storage_options=s3_server.storage_options).table("t")
    other.write(pa.table({"k": ["key-000001"], "n": [2], "v": [22], "w": [""]}))
    assert table.get("key-000001").column("v").to_pylist() == [1, 22]
    version = other.remove(KeyRange("key-000001", "key-000002"))
    assert table.get("key-000001", at_least=version).num_rows == 0


def test_a_range_takes_one_request_of_each_file_side_by_side(s3_server, table):
    assert table.scan(KeyRange("key-000100", "key-000200")).read_all().num_rows == 100
    begun = side_by_side(s3_server, ".parquet", ".parquet")
    found = table.scan(KeyRange("key-010100", "key-010200")).read_all()
    assert found.column("n").to_pylist() == list(range(10_100, 10_200))
    assert len(data_requests(s3_server)) == 2
    assert not begun.broken


def test_the_end_of_a_file_that_came_with_its_footer_is_not_asked_for_again(s3_server, table):
    table.reader._files.limits = FetchLimits(copy_bytes=0, tail_bytes=1 << 20)
    lakebed.set_read_cache_bytes(0)
    lakebed.set_read_cache_bytes(READ_CACHE_BYTES)
    s3_server.requests.clear()
    assert table.scan(KeyRange("key-000100", "key-000200")).read_all().num_rows == 100
    assert len(data_requests(s3_server)) == 2


def stored_file(s3_server, table):
    """The client and the key of the first data file."""
    url = table.files().column("url")[0].as_py()
    return table.storage, url.removeprefix(table.storage.url + "/")


def test_a_damaged_footer_is_noticed_at_the_first_use(s3_server, table):
    storage, name = stored_file(s3_server, table)
    content = bytearray(storage.get(name))
    content[-20] ^= 1
    storage.replace(name, bytes(content))
    with pytest.raises(DamagedError, match="footer"):
        table.get("key-000001")


@pytest.mark.parametrize(
    ("retained", "is_open"), [(0, False), (10_000, False), (-1_000, False), (0, True), (10_000, True)]
)
def test_a_file_that_was_cut_is_damage_open_or_not(s3_server, table, retained, is_open):
    if is_open:
        assert table.get("key-000002").num_rows == 1
        assert table.get("key-000001").num_rows == 1
    storage, name = stored_file(s3_server, table)
    storage.replace(name, storage.get(name)[:retained])
    with pytest.raises(DamagedError, match="restore"):
        table.scan(KeyRange("key-008000", "key-008400")).read_all()


def test_what_one_instance_opened_another_reads_with_its_own_client(s3_server, table):
    assert table.get("key-000001").num_rows == 1
    other = lakebed.open(table.storage.url, storage_options=s3_server.storage_options).table("t")
    assert other.get("key-000003").num_rows == 1
    table.storage.clients = None
    assert other.get("key-010001").num_rows == 1


def test_many_keys_may_come_from_a_generator_while_the_log_grows(s3_server, table):
    assert table.get("key-000001").num_rows == 1
    other = lakebed.open(table.storage.url, storage_options=s3_server.storage_options).table("t")
    other.write(pa.table({"k": ["key-000001"], "n": [2], "v": [22], "w": [""]}))
    assert table.get_many(key for key in ["key-000001", "key-000002"]).num_rows == 3


@pytest.mark.parametrize("point_bytes", [1, 1 << 30])
def test_many_keys_are_read_by_pages_or_out_of_copies(s3_server, table, point_bytes):
    table.reader.limits = ReadLimits(point_bytes=point_bytes)
    table.get("none")
    s3_server.requests.clear()
    wanted = range(0, ROWS, 37)
    keys = [f"key-{n:06d}" for n in wanted]
    found = table.get_many(["none", *keys, "key-000001x"], columns=["w", "n"])
    assert found.column("n").to_pylist() == list(wanted)
    assert found.column("w").to_pylist() == [f"{n * 7919:040d}" for n in wanted]
    # A copy of each file takes two requests, pages take many.
    assert (len(data_requests(s3_server)) <= 4) == (point_bytes > 1)


def test_of_many_keys_the_files_are_read_side_by_side_and_their_filters_once(s3_server, table):
    table.reader.limits = ReadLimits(point_bytes=1)
    keys = ["key-000100", "key-000101", "key-015000", "key-015001"]
    assert table.get_many(keys).num_rows == 4
    begun = side_by_side(s3_server, ".parquet", ".parquet")
    # Of pages that are not in memory yet.
    keys = ["key-005102", "key-005103", "key-018002", "key-018003"]
    assert table.get_many(keys).column("n").to_pylist() == [5_102, 5_103, 18_002, 18_003]
    # Of each file the pages: its filter was read whole before.
    assert len(data_requests(s3_server)) == 2
    assert not begun.broken


def test_a_column_may_be_asked_for_twice_of_a_few_keys_too(table):
    """Whose rows are read out of the object, for they are few beside it."""
    table.reader.limits = ReadLimits(point_bytes=1)
    found = table.get_many(["key-000123", "key-000456", "none"], columns=["n", "n"])
    assert found.column_names == ["n", "n"]
    assert [column.to_pylist() for column in found.columns] == [[123, 456]] * 2


def test_a_missing_file_is_named_whether_it_was_open_or_not(s3_server, table):
    table.get("key-000001")
    storage, name = stored_file(s3_server, table)
    storage.delete([name])
    for _ in range(2):
        with pytest.raises(NotFoundError, match="restore the object"):
            table.scan(KeyRange("key-000000", "key-010000")).read_all()


def test_sql_reads_by_ranges_and_names_a_file_that_is_missing(s3_server, table):
    lake = lakebed.open(table.storage.url, storage_options=s3_server.storage_options)
    lake.table("t").reader._files.limits = table.reader._files.limits
    lake.sql_engine()[0].in_memory_rows = 10
    few = "SELECT v FROM t WHERE k = 'key-000123'"
    many = "SELECT count(*) AS n, sum(v) AS v FROM t WHERE k BETWEEN 'key-000100' AND 'key-000199'"
    assert lake.sql(few).read_all().to_pylist() == [{"v": 123}]
    assert lake.sql(many).read_all().to_pylist() == [{"n": 100, "v": sum(range(100, 200))}]
    storage, name = stored_file(s3_server, table)
    storage.delete([name])
    with pytest.raises(NotFoundError, match="restore the object"):
        lake.sql(many).read_all()


def test_a_split_and_a_removal_count_exactly_in_files_that_are_read_by_ranges(table):
    """The page at each cut is fetched, of several files at the same time."""
    table.set(split_rows=4_000)
    assert len(split(table).split) == 1
    assert all(table.partitions().column("exact").to_pylist())
    table.remove(KeyRange(("key-000500",), ("key-017001",)))
    assert table.count() == lakebed.Count(ROWS - 16_501, exact=True)
    assert all(table.partitions().column("exact").to_pylist())


def test_a_deep_verification_reads_copies_and_goes_on_behind_what_it_cannot_have(table):
    assert table.verify(deep=True).sound
    first, second = table.state().referenced().values()
    name = data_name(table.id, first)
    data = bytearray(table.storage.get(name))
    data[10_000] ^= 4
    table.storage.replace(name, bytes(data))
    table.storage.delete([data_name(table.id, second)])
    found = {finding.file: finding.kind for finding in table.verify(deep=True).findings if finding.damage}
    assert found == {first.id: "file_damaged", second.id: "file_missing"}
