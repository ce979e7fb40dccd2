"""How many requests one thing costs on S3, counted at the server."""

import gc
import threading
import time

import pyarrow as pa
import pytest
from msgspec.structs import replace

import lakebed
from lakebed import Schema
from lakebed.files.parquet.open_files import FetchLimits
from lakebed.files.parquet.read_cache import READ_CACHE_BYTES
from lakebed.log.log_limits import LIMITS
from lakebed.log.segments import STATE_CACHE
from lakebed.storage import connect
from lakebed.storage.client_errors import SENT
from lakebed.storage.object_store import PART_BYTES
from tests.s3.conftest import Spoilt

STATE_BYTES = STATE_CACHE.bytes_max

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "int64", "w": "string"})


def rows(begin, end):
    numbers = range(begin, end)
    return pa.table(
        {
            "k": [f"key-{n:06d}" for n in numbers],
            "n": pa.array(numbers, pa.int64()),
            "v": pa.array(numbers, pa.int64()),
            "w": [str(n) * 5 for n in numbers],
        }
    )


@pytest.fixture
def url(s3_server):
    made = lakebed.create(s3_server.new_bucket() + "/lake", storage_options=s3_server.storage_options)
    table = made.create_table("t", SCHEMA)
    table.write(rows(0, 20_000))
    table.log.wait_for_checkpoint()
    return made.url


def opened(s3_server, url):
    return lakebed.open(url, storage_options=s3_server.storage_options).table("t")


def shown(s3_server):
    return [(r.method, r.key, r.query) for r in s3_server.requests]


def test_one_write_takes_at_most_five_requests(s3_server, url):
    """Data file, its last-modified time, entry, floor; now and then a checkpoint. A file so small has no summary."""
    table = opened(s3_server, url)
    table.write(rows(20_000, 20_010))
    table.log.wait_for_checkpoint()
    for count in range(10):
        s3_server.requests.clear()
        table.write(rows(30_000 + count, 30_010 + count))
        table.log.wait_for_checkpoint()
        assert len(s3_server.requests) <= 5, shown(s3_server)


def test_most_entries_carry_the_last_modified_before_them_and_history_asks_for_the_others(s3_server, url):
    """The probe, the log start, the newest entry's last-modified time, the entries, and each last-modified time that
    its successor does not tell."""
    table = opened(s3_server, url)
    for count in range(20):
        table.write(rows(count, count + 1))
        # Hard behind another entry none would ask.
        time.sleep(LIMITS.last_modified_pause_s)
    untold = sum(stored.entry.last_modified_us is None for stored in table.log.newest_first())
    assert 0 < untold < 10

    fresh = opened(s3_server, url)
    fresh.state()
    s3_server.requests.clear()
    assert fresh.history(limit=20).num_rows == 20
    asked = [r.method for r in s3_server.requests]
    assert asked.count("GET") == 2 + 20, shown(s3_server)
    assert asked.count("HEAD") <= 1 + untold, shown(s3_server)
    assert set(asked) == {"GET", "HEAD"}


def test_verification_lists_the_data_once(s3_server, url):
    """The log start twice, the checkpoint, a listing of the kept, two of the log, its entries and the read that finds
    none; one listing of the data."""
    table = opened(s3_server, url)
    table.write(rows(0, 10))
    s3_server.requests.clear()
    report = table.verify(files=True)
    assert (report.sound, report.entries, report.objects) == (True, 3, 3)
    assert len(s3_server.requests) == 2 + 2 + 2 + 3 + 1 + 1, shown(s3_server)


def test_a_warm_get_takes_at_most_two_requests(s3_server, url):
    """The probe for a newer entry, and the file's pages."""
    table = opened(s3_server, url)
    table.get("key-000001")
    for version in (5, 10_000, 19_999):
        s3_server.requests.clear()
        assert table.get(f"key-{version:06d}").column("v").to_pylist() == [version]
        assert len(s3_server.requests) <= 2, shown(s3_server)
    s3_server.requests.clear()
    assert table.get("key-000007", max_staleness=60).num_rows == 1
    assert len(s3_server.requests) <= 1


@pytest.fixture
def nothing_kept():
    """As in a new process."""
    lakebed.set_read_cache_bytes(0)
    lakebed.set_read_cache_bytes(READ_CACHE_BYTES)


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("large", [False, True])
def test_a_cold_get_takes_six_requests_in_three_round_trips(s3_server, url, large):
    """Opening the instance and the table included, and the proof that there is no newer entry.

    Two are side by side three times: neither is answered before both are there. A large file takes one request more
    than a small one, for its pages.
    """
    pairs = [
        {"instance.json", "catalog/checkpoints/latest/manifest.ndjson"},
        {"catalog listed", "checkpoints/latest/manifest.ndjson"},
        {"tables listed", ".parquet"},
    ]
    begun = {id(pair): threading.Barrier(2) for pair in pairs}

    def wait(request):
        asked = request.key or ("catalog" if "catalog" in request.query else "tables") + " listed"
        for pair in pairs:
            for ending in [ending for ending in pair if asked.endswith(ending)]:
                pair.remove(ending)
                begun[id(pair)].wait(timeout=120)
                return

    s3_server.requests.clear()
    s3_server.spoil = wait
    table = opened(s3_server, url)
    if large:
        table.reader._files.limits = FetchLimits(copy_bytes=0, tail_bytes=8 * 1024)
    assert table.get("key-000123").num_rows == 1
    assert len(s3_server.requests) == 6 + large, shown(s3_server)
    assert not any(pairs)
    assert not any(barrier.broken for barrier in begun.values())


@pytest.mark.usefixtures("nothing_kept")
def test_entries_after_the_checkpoint_are_read_together(s3_server, url):
    """However many there are, they take one round trip more: none is answered before all are requested."""
    table = opened(s3_server, url)
    names = set()
    for _ in range(5):
        table.write(rows(123, 124))
        table.log.wait_for_checkpoint()
        names.add(f"{table.version:020d}.ndjson")
    checkpoint = table.log.checkpoints.read()
    after = {name for name in names if name > f"{checkpoint.version:020d}.ndjson"}
    assert len(after) > 1
    begun = threading.Barrier(len(after))

    def wait(request):
        if request.method == "GET" and "tables/" in request.key and request.key.rpartition("/")[2] in after:
            begun.wait(timeout=120)

    fresh = opened(s3_server, url)
    s3_server.spoil = wait
    assert fresh.get("key-000123").num_rows == 6
    assert not begun.broken


@pytest.mark.usefixtures("nothing_kept")
def test_a_table_has_the_name_that_it_has_now(s3_server, url):
    """Though its checkpoint was read ahead, under the name that the checkpoint of the catalog has for it."""
    lake = lakebed.open(url, storage_options=s3_server.storage_options)
    name = "catalog/checkpoints/latest/manifest.ndjson"
    before = lake.storage.get(name)
    lake.rename_table("t", "u")
    lake.create_table("t", SCHEMA)
    lake.close()
    lake.storage.replace(name, before)
    fresh = lakebed.open(url, storage_options=s3_server.storage_options)
    assert fresh.table("t").name == "t"
    assert fresh.table("u").name == "u"


@pytest.mark.usefixtures("nothing_kept")
def test_a_store_that_refuses_listings_is_read_one_by_one(s3_server, url):
    s3_server.spoil = lambda request: None if request.key else Spoilt("403 Forbidden")
    assert opened(s3_server, url).get("key-000123").num_rows == 1


@pytest.mark.usefixtures("nothing_kept")
def test_a_cold_get_of_a_state_beyond_the_checkpoint_sees_what_came_since(s3_server, url):
    opened(s3_server, url).write(rows(123, 124))
    s3_server.requests.clear()
    assert opened(s3_server, url).get("key-000123").num_rows == 2
    # A file that is still being read in the state of the checkpoint may be read again in the newer one.
    assert len(s3_server.requests) <= 12, shown(s3_server)


def as_new():
    """Forget what this process has read."""
    lakebed.set_read_cache_bytes(0)
    lakebed.set_read_cache_bytes(READ_CACHE_BYTES)
    lakebed.set_state_cache_bytes(0)
    lakebed.set_state_cache_bytes(STATE_BYTES)


def get_with_cache(s3_server, url, folder, *, large):
    """Look up a key in a process that has read nothing; return the requests for data and segments."""
    as_new()
    s3_server.requests.clear()
    options = s3_server.storage_options | {"cache_dir": str(folder)}
    table = lakebed.open(url, storage_options=options).table("t")
    if large:
        table.reader._files.limits = FetchLimits(copy_bytes=0, tail_bytes=8 * 1024)
    assert table.get("key-000123").column("v").to_pylist() == [123]
    return [one.key for one in s3_server.requests if "/data/" in one.key or "/segments/" in one.key]


@pytest.fixture
def segmented(s3_server):
    """The table of ``url`` with segments of its checkpoint, as a large table has them."""
    made = lakebed.create(s3_server.new_bucket() + "/lake", storage_options=s3_server.storage_options)
    table = made.create_table("t", SCHEMA)
    table.log.limits = replace(LIMITS, inline_bytes=0)
    table.write(rows(0, 20_000))
    table.log.wait_for_checkpoint()
    return made.url


@pytest.mark.parametrize("large", [False, True])
def test_a_second_process_requests_no_data_that_the_first_has_cached(s3_server, segmented, tmp_path, large):
    first = get_with_cache(s3_server, segmented, tmp_path, large=large)
    assert len(first) == 2 + large, first
    assert get_with_cache(s3_server, segmented, tmp_path, large=large) == []


@pytest.mark.parametrize("large", [False, True])
def test_what_is_damaged_on_disk_is_requested_again_and_cached_again(s3_server, segmented, tmp_path, large):
    first = get_with_cache(s3_server, segmented, tmp_path, large=large)
    for path in (tmp_path / "v1" / "entries").rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            # A new file, because this process may read a link to the old one.
            path.unlink()
            path.write_bytes(data)
    assert get_with_cache(s3_server, segmented, tmp_path, large=large) == first
    assert get_with_cache(s3_server, segmented, tmp_path, large=large) == []


def test_a_scan_of_a_larger_file_evicts_nothing(s3_server, segmented, tmp_path):
    """It requests much at once, which is not kept."""
    get_with_cache(s3_server, segmented, tmp_path, large=True)
    kept = {path for path in (tmp_path / "v1" / "entries").rglob("*") if path.is_file()}
    options = s3_server.storage_options | {"cache_dir": str(tmp_path)}
    table = lakebed.open(segmented, storage_options=options).table("t")
    table.reader._files.limits = FetchLimits(copy_bytes=0, tail_bytes=8 * 1024, kept_bytes=40_000)
    assert table.scan().to_arrow().num_rows == 20_000
    assert {path for path in (tmp_path / "v1" / "entries").rglob("*") if path.is_file()} == kept


def test_a_table_dropped_and_made_again_has_the_new_rows(s3_server, url, tmp_path):
    get_with_cache(s3_server, url, tmp_path, large=False)
    lake = lakebed.open(url, storage_options=s3_server.storage_options)
    lake.drop_table("t")
    lake.create_table("t", SCHEMA).write(rows(123, 124))
    data = get_with_cache(s3_server, url, tmp_path, large=False)
    assert len(data) == 1


def test_verification_reads_the_store_and_not_the_cache(s3_server, url, tmp_path):
    get_with_cache(s3_server, url, tmp_path, large=False)
    options = s3_server.storage_options | {"cache_dir": str(tmp_path)}
    table = lakebed.open(url, storage_options=options).table("t")
    [name] = [one.name for one in table.storage.list(f"tables/{table.id}/data") if one.name.endswith(".parquet")]
    data = bytearray(table.storage.get(name))
    data[5000] ^= 1
    table.storage.replace(name, bytes(data))
    assert table.get("key-000124").num_rows == 1
    assert not table.verify(deep=True).sound


def test_nothing_is_asked_without_writes_and_reads(s3_server, url):
    """No thread of ours is left behind either."""
    before = set(threading.enumerate())
    table = opened(s3_server, url)
    table.get("key-000001")
    s3_server.requests.clear()
    gc.collect()
    threading.Event().wait(1.0)
    assert shown(s3_server) == []
    assert [t for t in threading.enumerate() if t not in before and "lakebed" in t.name.lower()] == []


def test_the_requests_that_a_process_counts_are_those_that_the_server_gets(s3_server, tmp_path):
    """The calls send files in parts, read ranges far apart and close together, list, and read absent objects."""
    storage = connect(s3_server.new_bucket() + "/lake", s3_server.storage_options)
    large = tmp_path / "large"
    large.write_bytes(bytes(2 * PART_BYTES + 1))
    small = tmp_path / "small"
    small.write_bytes(b"small")

    def some_calls():
        storage.send("large", large)
        storage.send("small", small)
        far, near = (5_000_000, 100), (5_000_300, 1_000)
        storage.read_ranges("large", [far, (0, 10), near, (0, 5), (9_000_000, 1)])
        assert storage.get("none") is None
        assert list(storage.list("none")) == []
        with storage.fetch("small"):
            pass
        storage.create("created", b"1")
        storage.now()
        storage.delete(["large", "small"])

    s3_server.requests.clear()
    before = SENT.last_hour()
    some_calls()
    after = SENT.last_hour()
    seen = [one.method for one in s3_server.requests if one.key or one.method != "GET"]
    lists = sum(one.method == "GET" and not one.key for one in s3_server.requests)
    deletes = sum(one.method == "POST" and "delete" in one.query for one in s3_server.requests)
    assert after.puts - before.puts == seen.count("PUT") + seen.count("POST") - deletes + lists, shown(s3_server)
    assert after.gets - before.gets == seen.count("GET") + seen.count("HEAD"), shown(s3_server)
