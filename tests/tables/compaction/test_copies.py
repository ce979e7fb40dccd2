"""Row groups whose keys lie in no other input are copied: the same rows in whole files, and nothing else of a merge."""

import math
import random
from bisect import bisect_left
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import Code, DamagedError
from lakebed.files.parquet import file_writer, group_copy
from lakebed.files.parquet.layout import Layout
from lakebed.files.sorting import merge
from lakebed.files.sorting.merge import MergeLimits, merge_runs
from lakebed.files.sorting.merge_inputs import open_input
from lakebed.model.keys import EncodedRange
from lakebed.model.settings import Settings
from lakebed.storage import blocks
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from tests.soaked import chosen, each_once, few

GROUP = 1000
SETTINGS = {"row_group_rows": GROUP, "page_rows": 100}
VALUES = {"n": "int64", "text": "string", "same": "string", "list": pa.list_(pa.int64()), "s": pa.struct({"x": "int8"})}
KEYS = {
    "text": ({"k": "string"}, lambda i: (f"key-{i:06d}",)),
    "long text": ({"k": "string"}, lambda i: (f"{'x' * 5000}{i:06d}",)),
    "number": ({"k": "int64"}, lambda i: (i - 3000,)),
    "bytes of ff": ({"k": "binary"}, lambda i: (b"\xff" * (i // 500) + b"%06d" % i,)),
    "several": ({"a": "string", "b": "int64"}, lambda i: (f"{i // 2500}", i)),
    "float with NaN": ({"k": "float64"}, lambda i: (float(i) if i < 5900 else math.nan,)),
    "bool and number": ({"a": "bool", "b": "int32"}, lambda i: (i >= 3000, i)),
}


OF_ANY_SIZE = MergeLimits(copied_share=2**62)
"""Stretches of any size are copied."""


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    """The row groups that were copied, one range for each stretch."""
    seen = []
    monkeypatch.setattr(merge, "copy_groups", lambda *a, **k: seen.append(a[1]) or group_copy.copy_groups(*a, **k))
    return seen


def rows_of(schema, key, numbers):
    """The rows of some numbers: their keys, the number in the sort key, and values of several encodings."""
    names = schema.row_key_names
    return pa.Table.from_pylist(
        [
            {
                **dict(zip(names, key(i), strict=True)),
                "at": i, "n": i, "text": f"{i:08x}", "same": f"v{i % 3}", "list": [i] * (i % 3), "s": {"x": i % 100},
            }
            for i in numbers
        ],
        schema=schema.arrow,
    )  # fmt: skip


def table_of(tmp_path, kind, *runs, **settings):
    row_key, key = KEYS[kind]
    schema = lakebed.Schema(row_key, {"at": "int64"}, VALUES)
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, settings={**SETTINGS, **settings})
    for numbers in runs:
        table.write(rows_of(schema, key, numbers))
    return table


def compacted(table, tmp_path, cores=1, limits=OF_ANY_SIZE):
    def execute(tasks):
        return [run_merge_task(task, table.storage, tmp_path, limits=limits) for task in tasks]

    return compact(table, prepare(table, "full"), execute, cores=cores)


def _plain(key):
    return key[0] if len(key) == 1 else key


def numbers(table):
    return table.scan(columns=["n"]).read_all().column("n").to_pylist()


@pytest.mark.parametrize("kind", chosen(KEYS, "text", "long text", "several", "float with NaN"))
def test_two_runs_that_overlap_a_little_are_copied_but_for_the_overlap(tmp_path, kind, copies):
    low, high = range(3600), [*range(3400, 3600), *range(3600, 6000)]
    table = table_of(tmp_path, kind, low, high)

    report = compacted(table, tmp_path)

    assert report.rows == len(low) + len(high)
    assert copies, "something was copied"
    assert sorted(numbers(table)) == sorted([*low, *high])
    verified = table.verify(files=True, deep=True)
    assert verified.findings == ()
    assert table.partitions().column("runs").to_pylist() == [1]
    key = KEYS[kind][1]
    for number in (0, 999, 1000, 3399, 3400, 3599, 3600, 4999, 5899):
        expected = 2 if 3400 <= number < 3600 else 1
        assert table.get(*key(number)).num_rows == expected, number
    some = range(0, 3400, 7)
    assert table.get_many([_plain(key(number)) for number in some]).num_rows == len(some)


def test_runs_that_overlap_nowhere_are_copied_whole(tmp_path, copies):
    table = table_of(tmp_path, "number", range(2000, 4000), range(2000))
    compacted(table, tmp_path)

    assert copies == [range(2), range(2)]
    assert numbers(table) == list(range(4000))


def test_copied_row_groups_keep_their_statistics(tmp_path, copies):
    """Also those that a column has none of, because the file that they come from has a NaN in another row group."""
    schema = lakebed.Schema({"k": "int64"}, values={"v": "double", "n": "int64"})
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, settings=SETTINGS)
    for low in (6000, 0):
        rows = range(low, low + 6000)
        values = [math.nan if i == 11_000 else float(i) for i in rows]
        table.write(pa.table({"k": rows, "v": values, "n": rows}))
    wheres = {"v > 11990": [11_000, *range(11_991, 12_000)], "n >= 2000 AND n < 2005": list(range(2000, 2005))}
    compacted(table, tmp_path)

    assert copies
    assert table.partitions().column("runs").to_pylist() == [1]
    for where, keys in wheres.items():
        assert table.scan(where=where).read_all().column("k").to_pylist() == keys
    assert table.explain(where="n >= 2000 AND n < 2005").pages_out_by_bounds == 119
    assert table.explain(where="v = 3").pages_out_by_bounds == 59


def test_copied_row_groups_keep_their_codec(tmp_path, copies):
    """What is merged between them has the codec in force, in files of its own."""
    table = table_of(tmp_path, "text", range(3400), compression="lz4")
    table.set(compression="none")
    table.write(rows_of(table.schema, KEYS["text"][1], range(3200, 6000)))
    table.set(compression="zstd")
    compacted(table, tmp_path)

    assert copies == [range(3), range(1, 3)]
    paths = [url.removeprefix("file://") for url in table.files().column("url").to_pylist()]
    found = {tuple(sorted({c.compression for c in chunks_of(path)})) for path in paths}
    assert found == {("LZ4",), ("UNCOMPRESSED",), ("ZSTD",)}
    assert sorted(numbers(table)) == sorted([*range(3400), *range(3200, 6000)])
    assert table.get("key-003300").num_rows == 2
    assert table.verify(files=True, deep=True).findings == ()


def chunks_of(path):
    """All column chunks of a file."""
    metadata = pq.read_metadata(path)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return [group.column(index) for group in groups for index in range(group.num_columns)]


def test_what_was_copied_is_copied_again(tmp_path, copies):
    table = table_of(tmp_path, "several", range(2000, 4000), range(2000))
    compacted(table, tmp_path)
    table.write(rows_of(table.schema, KEYS["several"][1], range(500)))
    copies.clear()
    compacted(table, tmp_path)

    assert copies
    assert sorted(numbers(table)) == sorted([*range(500), *range(4000)])
    assert table.verify(files=True, deep=True).findings == ()


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_keys_with_rows_on_both_sides_of_a_border_are_neither_lost_nor_doubled(tmp_path, seed, copies):
    """A key has up to 700 rows, so many lie in two row groups; tasks cut the keys anywhere."""
    chance = random.Random(seed)
    row_key, _ = KEYS["number"]
    schema = lakebed.Schema(row_key, {"at": "int64"}, VALUES)
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, settings=SETTINGS)
    expected = []
    for run in range(3):
        keys = []
        key = run * chance.choice([3, 8, 15])
        while len(keys) < 5000:
            keys += [key] * chance.choice([1, 1, 50, 700])
            key += 1
        rows = rows_of(schema, lambda i, keys=keys: (keys[i],), range(len(keys)))
        expected += zip(rows["k"].to_pylist(), rows["at"].to_pylist(), strict=True)
        table.write(rows)

    compacted(table, tmp_path, cores=chance.choice([1, 3]))

    found = table.scan(columns=["k", "at"]).read_all()
    assert list(zip(found["k"].to_pylist(), found["at"].to_pylist(), strict=True)) == sorted(expected)
    assert table.verify(files=True, deep=True).findings == ()


@pytest.mark.parametrize(
    ("counts", "other", "copied"),
    [({0: 1000, 1: 900, 2: 200, 5: 900}, 4, range(1)), ({0: 900, 2: 200, 3: 900, 4: 1000}, 1, range(2, 3))],
    ids=["next", "previous"],
)
def test_a_row_group_that_shares_a_key_with_one_that_is_merged_is_merged_too(tmp_path, copies, counts, other, copied):
    """Key 2 is in two groups, one of which has keys on both sides of the other run's."""
    schema = lakebed.Schema({"k": "int64"}, {"at": "int64"}, VALUES)
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, settings=SETTINGS)
    runs = [[key for key, count in counts.items() for _ in range(count)], [other] * 1000]
    for keys in runs:
        table.write(rows_of(schema, lambda i, keys=keys: (keys[i],), range(len(keys))))
    compacted(table, tmp_path)

    assert copies == [copied]
    assert table.scan(columns=["k"]).read_all()["k"].to_pylist() == sorted(runs[0] + runs[1])


def merged_paths(tmp_path, *runs, kind="number"):
    table = table_of(tmp_path, kind, *runs)
    paths = [tmp_path / "lake" / url.split("/lake/")[1] for url in table.files().column("url").to_pylist()]
    return table, sorted(paths, key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("bounds", [(b"", None), (1500, 4500), (1000, 2000), (5999, None)])
def test_only_row_groups_inside_the_key_range_are_copied(tmp_path, bounds):
    table, paths = merged_paths(tmp_path, range(3200), range(3100, 6000))
    low, high = (bound if not isinstance(bound, int) else table.schema.codec.encode([bound - 3000]) for bound in bounds)
    layout, keys = Layout.of(table.schema, Settings(**SETTINGS)), EncodedRange(low, high)
    out = tmp_path / "out"
    out.mkdir()
    files = merge_runs(paths, layout, out, key_range=keys, memory_limit_bytes=2**26, limits=OF_ANY_SIZE)

    first, last = bounds[0] or 0, bounds[1] or 6000
    expected = sorted(n for run in (range(3200), range(3100, 6000)) for n in run if first <= n < last)
    assert sum(file.rows for file in files) == len(expected)
    assert all(keys.contains(file.min_key) and keys.contains(file.max_key) for file in files)
    assert all(a.max_key <= b.min_key for a, b in pairwise(files))


def test_files_of_another_schema_or_another_writer_are_merged(tmp_path, copies):
    table = table_of(tmp_path, "number", range(2000))
    table.alter(lakebed.AddField("new", "int64"))
    rows = rows_of(table.schema, KEYS["number"][1], range(2000, 4000))
    table.write(rows)
    compacted(table, tmp_path)
    assert not copies
    assert numbers(table) == list(range(4000))

    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pa.table(rows), foreign)
    assert merge.stretches([open_input(foreign, table.schema)], table.layout(), None, OF_ANY_SIZE) == []


def test_small_stretches_are_merged(tmp_path, copies):
    table = table_of(tmp_path, "number", range(2000), range(2000, 4000))
    compacted(table, tmp_path, limits=MergeLimits())

    assert not copies


def test_a_merge_that_fails_after_a_copy_leaves_no_file(tmp_path, copies):
    table, paths = merged_paths(tmp_path, range(3200), range(3100, 6000))
    out = tmp_path / "out"
    out.mkdir()
    content = bytearray(paths[1].read_bytes())
    chunk = pq.read_metadata(paths[1]).row_group(0).column(3)
    place = chunk.data_page_offset + chunk.total_compressed_size * 3 // 4
    content[place : place + 20] = bytes(20)
    paths[1].write_bytes(content)
    layout = Layout.of(table.schema, Settings(**SETTINGS))
    with pytest.raises(DamagedError) as raised:
        merge_runs(paths, layout, out, key_range=None, memory_limit_bytes=2**26, limits=OF_ANY_SIZE)
    assert raised.value.code is Code.SOURCE_DAMAGED
    assert copies
    assert list(out.iterdir()) == []


@each_once(rows_of_a_key=[1, 40], kind=["string", "int64"])
def test_the_summary_of_a_copy_has_exact_ranks_close_together(tmp_path, kind, rows_of_a_key):
    """Taken from the page index if few keys lie on both sides of a border between pages, else from the keys."""
    schema = lakebed.Schema({"k": kind}, {"at": "int64"})
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, settings={**SETTINGS, "page_rows": 100})
    numbers = range(80_000)
    keys = [f"{i // rows_of_a_key:06d}" if kind == "string" else i // rows_of_a_key for i in numbers]
    table.write(pa.table({"k": keys, "at": numbers}, schema=schema.arrow))
    [url] = table.files().column("url").to_pylist()
    out = tmp_path / "out"
    out.mkdir()
    path = tmp_path / "lake" / url.split("/lake/")[1]
    file = group_copy.copy_groups(path, range(1, 80), table.layout(), out)

    found = schema.codec.encode_columns(pq.read_table(file.path)).to_pylist()
    assert (file.rows, file.min_key, file.max_key) == (79_000, found[0], found[-1])
    assert found == sorted(found)
    assert [bisect_left(found, noted) for noted in file.summary.keys] == list(file.summary.ranks)
    assert max(high - low for low, high in pairwise([*file.summary.ranks, file.rows])) <= 79_000 / 512


@pytest.mark.parametrize(("kind", "is_copied"), [("int64", True), ("list<int64>", False), ("json", False)])
def test_files_that_other_engines_cannot_read_are_not_copied(tmp_path, kind, is_copied):
    """Those that Lakebed wrote before: without ids of inner columns, and with JSON in the schema for Arrow."""
    schema = lakebed.Schema({"k": "int64"}, values={"v": kind})
    rows = pa.table([pa.array([1]), pa.nulls(1, schema.arrow.field("v").type)], schema=schema.arrow)
    layout = Layout.of(schema, Settings())
    [new] = file_writer.write_run(rows.to_batches(), layout, tmp_path, rows_estimate=1)
    assert group_copy.copyable(new.path, schema) is not None
    before = tmp_path / "before.parquet"
    with pq.ParquetWriter(before, schema.arrow, write_page_index=True) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({blocks.KEY: blocks.PLACEHOLDER})
    blocks.seal(before)
    assert (group_copy.copyable(before, schema) is not None) == is_copied
