"""What a reader does around the rows: damage, missing files, requests that mean nothing, copies, what is kept open."""

from __future__ import annotations

import datetime as dt
import gc
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

import lakebed
from lakebed import Schema
from lakebed.clock import random_token
from lakebed.errors import Code, DamagedError, Error, NotFoundError, UsageError
from lakebed.files.parquet import open_files
from lakebed.files.parquet.read_cache import READ_CACHE, ReadCache, ReadStatistics
from lakebed.model.files import data_name
from lakebed.model.keys import ALL_KEYS, EncodedRange, successor
from lakebed.read.rows.page_read import PageReader
from lakebed.read.rows.plan import QueryPlan
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.request import LIMITS, ReadLimits, ReadRequest
from lakebed.storage import LocalStorage, connect
from lakebed.write.attach import check_sorted
from lakebed.write.run import send_run
from tests.raising import raises
from tests.tables.read.cases import LETTERS, TABLE, lettered, object_path, one_partition, stored


def key(letter):
    return LETTERS.codec.encode((letter,))


def point(letter):
    return EncodedRange(key(letter), successor(key(letter)))


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(tmp_path / "root", durability="none")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def reader_of(storage, limits=LIMITS, cache=READ_CACHE):
    reader = Reader(storage, TABLE, lambda _file: True, cache=cache)
    reader.limits = limits
    return reader


WIDE = ReadLimits(page_rows=-1)


def all_rows(reader, plan, columns, statistics=None):
    """The rows of a plan as one table."""
    return reader.scan(plan, columns, None, statistics=statistics).read_all()


def test_a_negative_limit_and_an_unknown_column_are_refused_before_anything_is_read(storage):
    reader = reader_of(storage)
    with pytest.raises(UsageError, match="-1"):
        reader.scan(QueryPlan((), LETTERS), ["k"], -1)
    with pytest.raises(UsageError, match="unknown"):
        reader.scan(QueryPlan((), LETTERS), ["unknown"], None)
    with pytest.raises(UsageError, match="unknown"):
        all_rows(reader, QueryPlan((), LETTERS), ["k", "unknown"])


def test_an_empty_plan_answers_with_the_columns(storage):
    found = all_rows(reader_of(storage), QueryPlan((), LETTERS), ["v", "k"])
    assert found.num_rows == 0
    assert found.schema.names == ["v", "k"]


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


@pytest.mark.parametrize("from_end", [1, 6, 9, 40])
def test_a_flipped_bit_in_the_footer_is_damage_and_names_the_file(storage, root, tmp_path, from_end):
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    flip(object_path(root, file), -from_end)
    with pytest.raises(DamagedError, match=file.id) as raised:
        all_rows(reader_of(storage), one_partition((file,), point("b")), LETTERS.names)
    assert raised.value.name == data_name(TABLE, file)


@pytest.mark.parametrize("size", [0, 3, 100])
def test_a_cut_file_is_damage_and_names_the_file(storage, root, tmp_path, size):
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    path = object_path(root, file)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamagedError, match=file.id):
        reader_of(storage).scan(one_partition((file,), ALL_KEYS), LETTERS.names, None).read_all()


@pytest.fixture(params=["narrow", "wide"])
def way(request):
    """Both ways to read must notice; without this, all tables of tests are narrow."""
    return WIDE if request.param == "wide" else LIMITS


@pytest.mark.parametrize("method", ["get", "scan"])
def test_a_page_that_cannot_be_decoded_is_damage_and_names_the_file(way, storage, root, tmp_path, method):
    """The engine names no file; of the two that are merged it is the damaged one."""
    (good,) = stored(storage, LETTERS, lettered("abc" * 50), tmp_path)
    (bad,) = stored(storage, LETTERS, lettered("abc" * 50, first=1000), tmp_path)
    path = object_path(root, bad)
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 60 + content[64:])
    reader = reader_of(storage, way)
    ask = {
        "get": lambda: all_rows(reader, one_partition((good, bad), point("b")), LETTERS.names),
        "scan": lambda: reader.scan(one_partition((good, bad), ALL_KEYS), LETTERS.names, None).read_all(),
    }
    with pytest.raises(DamagedError, match=bad.id):
        ask[method]()


def test_a_missing_file_is_named_with_the_remedy(storage, root, tmp_path):
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    object_path(root, file).unlink()
    with pytest.raises(NotFoundError, match="restore the object") as raised:
        all_rows(reader_of(storage), one_partition((file,), point("b")), LETTERS.names)
    assert raised.value.file == file.id


def test_a_file_that_goes_missing_after_it_was_opened_is_named_too(way, storage, root, tmp_path):
    """The engine takes a missing file for an empty one: rows would be lost without a word."""
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    reader = reader_of(storage, way)
    planned = one_partition((file,), ALL_KEYS)
    assert all_rows(reader, planned, ["k"]).num_rows == 3
    object_path(root, file).unlink()
    # Pages of the keys may be cached.
    with pytest.raises(NotFoundError, match=file.id):
        all_rows(reader, planned, LETTERS.names)


def test_a_stray_file_that_is_not_parquet_is_damage(storage, root, tmp_path):
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    object_path(root, file).write_bytes(b"x" * file.size_bytes)
    with pytest.raises(DamagedError, match=file.id):
        all_rows(reader_of(storage), one_partition((file,), point("b")), LETTERS.names)


def test_a_file_without_permission_is_a_storage_error(storage, root, tmp_path, monkeypatch):
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    path = object_path(root, file)
    path.unlink()
    path.mkdir()
    with raises(Code.TEMPORARY_STORAGE_FAILED):
        all_rows(reader_of(storage), one_partition((file,), point("b")), LETTERS.names)


def test_filters_over_keys_that_an_attached_file_stores_in_another_type_are_not_asked(storage, tmp_path):
    """Decimals as integers, as some writers have them: their hashes are others, and every key would be unknown."""
    schema, files = Schema({"k": "decimal128(6, 2)"}), []
    for part in range(2):
        numbers = pa.array([Decimal(number) for number in range(part, 20, 2)], pa.decimal128(6, 2))
        bloom = {"k": {"ndv": 10, "fpp": 0.001}}
        rows = pa.table({"k": numbers}, schema=schema.arrow)
        pq.write_table(rows, tmp_path / "in", store_decimal_as_integer=True, bloom_filter_options=bloom)
        checked = check_sorted(tmp_path / "in", [schema], (), "in")
        assert checked is not None
        files += [new.file for new in send_run(storage, TABLE, [checked], job=f"job-{part:08d}")]
    for key in (schema.codec.encode_key((Decimal(number),)) for number in range(20)):
        plan = one_partition(tuple(files), EncodedRange(key, successor(key)), schema=schema)
        assert all_rows(reader_of(storage), plan, ["k"]).num_rows == 1


def test_pages_are_not_read_for_a_key_that_no_filter_knows(storage, tmp_path):
    files = tuple(stored(storage, LETTERS, lettered(text), tmp_path)[0] for text in ("ac", "bd", "ad"))
    reader = reader_of(storage)
    for letter, members in (("c", {files[0].id}), ("b", {files[1].id}), ("a", {files[0].id, files[2].id})):
        statistics = ReadStatistics()
        found = all_rows(reader, one_partition(files, point(letter)), ["k"], statistics)
        assert found.column("k").to_pylist() == [letter] * len(members)
        assert statistics.files == members
    statistics = ReadStatistics()
    assert all_rows(reader, one_partition(files, point("bb")), ["k"], statistics).num_rows == 0
    assert (statistics.files, statistics.pages) == (set(), 0)


def test_a_flipped_bit_in_a_page_is_damage_in_a_narrow_read(storage, root, tmp_path):
    """Pages carry checksums, which a read of few pages has the time to verify."""
    rows = lettered("".join(chr(ord("a") + i % 26) for i in range(2000)))
    (file,) = stored(storage, LETTERS, rows, tmp_path)
    path = object_path(root, file)
    content = path.read_bytes()
    unnoticed = []
    for position in range(40, 4000, 97):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        try:
            plan = one_partition((file,), EncodedRange(key("a"), key("d")))
            found = all_rows(reader_of(storage), plan, LETTERS.names)
        except DamagedError:
            continue
        # A page that was not read may be damaged; then the answer is right.
        if found.column("k").to_pylist() != sorted(found.column("k").to_pylist()) or found.num_rows != 231:
            unnoticed.append(position)
    assert not unnoticed


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_index_that_makes_no_sense_is_damage_from_either_end(storage, root, tmp_path, reverse):
    (file,) = stored(storage, LETTERS, lettered("abc" * 100), tmp_path)
    place = reader_of(storage).open(file, LETTERS).footer.groups[0].chunks[1].column_index
    assert place is not None
    content = bytearray(object_path(root, file).read_bytes())
    content[place[0] : sum(place)] = b"\xff" * place[1]
    object_path(root, file).write_bytes(content)
    with pytest.raises(DamagedError, match=file.id):
        reader_of(storage).scan(one_partition((file,), ALL_KEYS), ["k"], None, reverse=reverse).read_all()


def test_files_of_one_run_are_read_one_after_another(storage, tmp_path):
    """Only files that overlap are merged; those that share a key do."""
    files = tuple(stored(storage, LETTERS, lettered(text), tmp_path)[0] for text in ("xyz", "abc", "cd", "efg"))
    reader = reader_of(storage)
    statistics, found, opened = ReadStatistics(), [], []
    for batch in reader.scan(one_partition(files, ALL_KEYS), ["k"], None, statistics=statistics):
        found.append(batch.column("k").to_pylist())
        opened.append(set(statistics.files))
    assert found == [list("abccd"), list("efg"), list("xyz")]
    first, second, third, fourth = (file.id for file in files)
    assert opened == [{second, third}, {second, third, fourth}, {first, second, third, fourth}]
    statistics = ReadStatistics()
    limited = reader.scan(one_partition(files, ALL_KEYS), ["k"], 6, statistics=statistics)
    assert limited.read_all().num_rows == 6
    assert statistics.files == {second, third, fourth}


def overlapping(storage, tmp_path):
    """Four files over the same letters, each with some of its own, and what each has."""
    texts = ("az", "abz", "acz", "adz")
    return {text: stored(storage, LETTERS, lettered(text), tmp_path)[0] for text in texts}


def test_of_files_that_overlap_only_those_are_opened_that_may_have_the_key(storage, tmp_path):
    files = tuple(overlapping(storage, tmp_path).values())
    reader = reader_of(storage)
    for letter, expected in (("c", {files[2].id}), ("bb", set()), ("z", {file.id for file in files})):
        statistics = ReadStatistics()
        all_rows(reader, one_partition(files, point(letter)), ["k"], statistics)
        assert statistics.files == expected
        assert statistics.files_by_filter == len(files) - len(expected)


def test_of_files_that_overlap_one_block_is_read_at_first_and_then_their_filters_once(storage, tmp_path, monkeypatch):
    files = tuple(overlapping(storage, tmp_path).values())
    cache = ReadCache(1 << 20)
    reader = Reader(storage, TABLE, lambda _file: True, cache=cache)
    read = []
    whole = open_files.OpenFiles.read

    def watched(self, opened, places):
        read.extend((opened.file.id, place[1]) for place in places if place != opened.footer.blocks.byte_range)
        return whole(self, opened, places)

    monkeypatch.setattr(open_files.OpenFiles, "read", watched)

    def reads_of(letters, files):
        read.clear()
        for letter in letters:
            all_rows(reader, one_partition(files, point(letter)), ["k"])
        return sorted(read)

    header, block = 47, 32  # the filters are of one block: 15 bytes and 32
    assert reads_of("b", files) == sorted((file.id, size) for file in files for size in (header, block))
    assert [name for name, size in reads_of("cdyy", files) if size > block] == sorted(file.id for file in files)
    assert cache.stats().filters.size_bytes > 4 * 32
    # A file more, as after another write: of the others nothing is read.
    (fifth,) = stored(storage, LETTERS, lettered("abcdz"), tmp_path)
    assert reads_of("b", (*files, fifth)) == [(fifth.id, block), (fifth.id, header)]
    assert all_rows(reader, one_partition((*files, fifth), point("b")), ["k"]).num_rows == 2


@pytest.mark.parametrize("bytes_max", [0, 40, 600])
def test_a_cache_that_is_too_small_changes_no_answer(storage, tmp_path, bytes_max):
    files = tuple(overlapping(storage, tmp_path).values())
    cache = ReadCache(bytes_max)
    reader = Reader(storage, TABLE, lambda _file: True, cache=cache)
    for letter, rows in (("a", 4), ("c", 1), ("bb", 0), ("z", 4)) * 2:
        assert all_rows(reader, one_partition(files, point(letter)), ["k"]).num_rows == rows
    assert cache.stats().size_bytes <= bytes_max


def test_a_stream_reads_nothing_before_it_is_asked(storage, root, tmp_path):
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    object_path(root, file).unlink()
    stream = reader_of(storage).scan(one_partition((file,), ALL_KEYS), ["k"], None)
    with pytest.raises(NotFoundError) as raised:
        stream.read_next_batch()
    assert raised.value.code is Code.DATA_FILE_MISSING


def copies_of(*files):
    """Copies there are of the files now; to look for garbage takes half a second in a process of many tests."""
    gc.collect()
    return [
        path for path in open_files.copies_folder().iterdir() if path.name.startswith(tuple(file.id for file in files))
    ]


def test_a_copy_goes_when_neither_the_cache_nor_a_stream_holds_it(tmp_path):
    """From memory, files are read from copies."""
    storage = connect(f"memory://{random_token()}")
    (file,) = stored(storage, LETTERS, lettered("abcd" * 5000), tmp_path)
    cache = ReadCache(1 << 20)
    reader = reader_of(storage, WIDE, cache)
    stream = reader.scan(one_partition((file,), ALL_KEYS), LETTERS.names, None)
    assert stream.read_next_batch().num_rows > 0
    cache.limit(0)
    assert len(copies_of(file)) == 1
    stream.close()
    del stream, reader
    assert copies_of(file) == []


def test_copies_are_bounded_and_a_query_keeps_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("lakebed.files.parquet.page_decoder.CACHED_PAGES", 0)
    storage = connect(f"memory://{random_token()}")
    files = tuple(stored(storage, LETTERS, lettered(text), tmp_path)[0] for text in ("abc", "bcd", "cde"))
    cache = ReadCache(14 * files[0].footer_bytes + files[0].size_bytes)
    reader = Reader(storage, TABLE, lambda _file: True, cache=cache)
    found = reader.scan(one_partition(files, ALL_KEYS), ["k"], None).read_all()
    assert found.column("k").to_pylist() == list("abbcccdde")
    assert cache.stats().files.entries == 1
    assert len(copies_of(*files)) == 1


def test_a_merge_in_levels_keeps_its_copies_too(tmp_path):
    """Where it begins, nothing else may hold them: the cache had no room."""
    storage = connect(f"memory://{random_token()}")
    files = tuple(stored(storage, LETTERS, lettered(text), tmp_path)[0] for text in ("abc", "bcd", "cde"))
    reader = reader_of(storage, replace(WIDE, fan_in=2), ReadCache(0))
    found = reader.scan(one_partition(files, ALL_KEYS), ["k"], None).read_all()
    assert found.column("k").to_pylist() == list("abbcccdde")
    assert len(copies_of(*files)) == 0


def test_a_damaged_copy_is_never_read(tmp_path):
    storage = connect(f"memory://{random_token()}")
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    name = data_name(TABLE, file)
    content = bytearray(storage.get(name) or b"")
    content[10] ^= 1
    storage.replace(name, bytes(content))
    with pytest.raises(DamagedError, match=file.id):
        all_rows(reader_of(storage), one_partition((file,), point("b")), LETTERS.names)


def test_a_failure_that_no_file_explains_says_so(storage, tmp_path):
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)

    class Broken(PageReader):
        def read(self, *_):
            raise RuntimeError("the engine gave up")

    reader = reader_of(storage)
    reader._page_reader = Broken(reader._files)
    with pytest.raises(Error, match="the engine gave up"):
        all_rows(reader, one_partition((file,), ALL_KEYS), ["k"])


def test_every_plan_streams_and_prunes(storage, tmp_path):
    """No operator that holds its input, and the filter reaches the scan."""
    from lakebed.engine.datafusion import operators_of
    from lakebed.files.sorting.merge import check_plan
    from lakebed.read.rows.datafusion_scan import ScanEngine

    files = tuple(stored(storage, LETTERS, lettered(text), tmp_path)[0] for text in ("abc", "bcd"))
    reader = reader_of(storage)
    engine = ScanEngine(reader._files)
    opened = [reader._files.open(file, LETTERS) for file in files]
    request = ReadRequest(LETTERS, EncodedRange(key("b"), key("d")), ("n",), 10)
    for used in (opened[:1], opened):
        for _, condition in engine.conditions(used, request):
            made = engine.frame(used, condition, request).execution_plan()
            check_plan(operators_of(made))
            drawing = made.display_indent()
            assert drawing.count("pruning_predicate=") == len(used)
            assert drawing.count("projection=[k, n],") == len(used)


def test_narrow_reads_leave_the_engine_alone(storage, tmp_path):
    """Importing it would take most of a second of a command's time."""
    (file,) = stored(storage, LETTERS, lettered("abc"), tmp_path)
    reader = reader_of(storage)
    assert all_rows(reader, one_partition((file,), point("b")), ["v"]).num_rows == 1
    assert reader.scan(one_partition((file,), ALL_KEYS), ["v"], 2).read_all().num_rows == 2
    assert reader._engine is None


def overlaid(storage, folder, *texts):
    return tuple(file for text in texts for file in stored(storage, LETTERS, lettered(text), folder))


def test_a_few_rows_of_more_files_than_one_merge_takes_are_a_narrow_read(storage, tmp_path):
    """A merge of a hundred files in levels took a second and a half for a thousand rows."""
    files = overlaid(storage, tmp_path, *["abc"] * (LIMITS.fan_in + 1))
    reader = reader_of(storage)
    assert reader.scan(one_partition(files, ALL_KEYS), ["k"], None).read_all().num_rows == 3 * len(files)
    assert reader._engine is None


@pytest.mark.parametrize(("files", "rows", "is_narrow"), [(2, 10, True), (2, 11, False), (3, 13, True), (3, 14, False)])
def test_what_is_narrow_grows_with_the_files_that_overlap(tmp_path, files, rows, is_narrow):
    """Two files share twenty rows, three have forty."""
    storage = LocalStorage(tmp_path / "store")
    reader = reader_of(storage)
    reader.limits = ReadLimits(page_rows=20, share_files=2)
    plan = one_partition(overlaid(storage, tmp_path, *["a" * rows] * files), EncodedRange(key("a"), key("b")))
    assert reader.scan(plan, ["k"], None).read_all().num_rows == files * rows
    assert (reader._engine is None) == is_narrow


def test_a_wide_read_comes_in_batches(storage, tmp_path):
    (file,) = stored(storage, LETTERS, lettered("abcdefgh" * 8000), tmp_path)
    sizes = [b.num_rows for b in reader_of(storage).scan(one_partition((file,), ALL_KEYS), ["k"], None)]
    assert sum(sizes) == 64_000
    assert max(sizes) <= 8192


def test_a_narrow_read_in_a_new_process_imports_neither_pandas_nor_an_engine(tmp_path):
    """Arrow imports pandas to convert a value of Python, which takes ten times as long as the read."""
    schema = Schema({"k": "string", "d": "date32", "b": "binary"}, values={"v": "int64"})
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema)
    row = {"k": "ä", "d": dt.date(2026, 1, 31), "b": b"\x00\x01", "v": 7}
    table.write(pa.Table.from_pylist([row], schema.arrow))
    table.write(pa.Table.from_pylist([{**row, "v": 8}], schema.arrow))
    code = (
        "import sys, datetime as dt, lakebed\n"
        "table = lakebed.open(sys.argv[1]).table('t')\n"
        "found = table.get('ä', dt.date(2026, 1, 31), b'\\x00\\x01')\n"
        "scanned = table.scan(lakebed.KeyRange(('ä',), ('ö',)), limit=9).read_all()\n"
        "print(found.num_rows, scanned.num_rows, *({'pandas', 'datafusion', 'pyarrow.dataset'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "lake")], check=True, capture_output=True, text=True, timeout=120
    )
    assert ran.stdout == "2 2\n"


def test_a_file_that_was_damaged_and_is_restored_is_read_anew(storage, root, tmp_path):
    """What was decoded of the damaged bytes, such as a page index, which has no checksum, is not kept."""
    (file,) = stored(storage, LETTERS, lettered("abc" * 300), tmp_path)
    path = object_path(root, file)
    whole = path.read_bytes()
    reader = reader_of(storage)
    # The indexes lie between the pages and the footer.
    path.write_bytes(whole[: -file.footer_bytes - 120] + b"\xff" * 120 + whole[-file.footer_bytes :])
    with pytest.raises(DamagedError, match=file.id):
        reader.scan(one_partition((file,), ALL_KEYS), LETTERS.names, None).read_all()
    path.write_bytes(whole)
    assert reader.scan(one_partition((file,), ALL_KEYS), LETTERS.names, None).read_all().num_rows == 900
