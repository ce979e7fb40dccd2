"""Filters of files, one at a time and many together: never no to a key that is there, seldom yes to another."""

from bisect import bisect_left
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed import Schema
from lakebed.files.parquet.bloom_filters import HashedKey, HashedKeys, Overlap, _block, _may_hold, filters_of
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.parquet.footer import read_footer
from lakebed.files.parquet.open_files import OpenFile
from lakebed.files.parquet.pages import PagedFile
from lakebed.files.parquet.read_cache import CacheKind, ReadCache
from lakebed.model.keys import EncodedRange, successor
from tests.tables.read.cases import files_kept_in, layout, parts_of

TWO = Schema({"a": "int32", "b": "string"}, values={"v": "int64"})
ONE = Schema({"b": "string"}, values={"v": "int64"})


def rows(keys, schema):
    return pa.Table.from_pylist([dict(zip(schema.names, (*key, 1), strict=True)) for key in sorted(keys)], schema.arrow)


def written(folder, schema, keys, **settings):
    """The path of a file of these keys, and its footer."""
    (file,) = write_run(rows(keys, schema).to_batches(), layout(schema, **settings), folder, rows_estimate=len(keys))
    content = file.path.read_bytes()
    return file.path, read_footer(content[-8 - int.from_bytes(content[-8:-4], "little") :], schema, "file")


def member(schema, key):
    """A key, or the first fields of one."""
    encoded = schema.codec.encode(key)
    return HashedKey(schema.row_key, key, EncodedRange(encoded, successor(encoded)))


@pytest.fixture(params=[ONE, TWO], ids=["one field", "two fields"])
def schema(request):
    return request.param


def keys_of(schema, numbers):
    return [(f"k{n:06d}",) if schema is ONE else (n % 3, f"k{n // 3:06d}") for n in numbers]


def in_place(files, asked):
    """The positions of files that may have the key, each asked by itself."""
    found = []
    for position, (path, footer) in enumerate(files):
        with path.open("rb") as stream:
            reaching = (footer.groups[i] for i in footer.fences.reaching(asked._keys))
            if any(asked.may_be_in(parts_of(stream), group, {}) for group in reaching):
                found.append(position)
    return found


@pytest.mark.parametrize("threads", [1, 3])
def test_many_files_asked_together_answer_as_each_by_itself(schema, threads, tmp_path):
    """Some have several row groups, some keys lie in several files."""
    shares = [range(0, 3000, 7), range(0, 3000, 11), range(1000, 3000), range(13, 14)]
    files = [written(tmp_path, schema, keys_of(schema, share)) for share in shares]
    assert max(len(footer.groups) for _, footer in files) > 1
    overlap = Overlap.of([(str(path), footer) for path, footer in files], schema.row_key)
    cache = ReadCache(1 << 20)
    wrong = 0
    for n in range(0, 3000, 13):
        for there in (True, False):
            (key,) = keys_of(schema, [n])
            asked = member(schema, key if there else (*key[:-1], key[-1] + "x"))
            # The first time by single blocks, the second by whole filters.
            found = asked.files_of(overlap, reading(files), ReadCache(1 << 20), threads)
            assert found == asked.files_of(overlap, reading(files), cache, threads) == in_place(files, asked)
            having = [position for position, share in enumerate(shares) if there and n in share]
            assert set(having) <= set(found)
            wrong += len(found) - len(having)
    assert wrong < 20
    assert cache.stats().filters.entries == sum(len(footer.groups) for _, footer in files)


def reading(files):
    def read(position, places):
        with files[position][0].open("rb") as stream:
            return parts_of(stream)(places)

    return read


def test_fields_of_few_values_are_asked_as_one_key(tmp_path):
    """Each file has all values of both fields, and half of the pairs."""
    pairs = [(a, f"b{b}") for a in range(40) for b in range(40)]
    files = [written(tmp_path, TWO, [p for i, p in enumerate(pairs) if i % 2 == half]) for half in (0, 1)]
    for _, footer in files:
        assert [over for over, _ in filters_of(footer.groups[0], TWO.row_key)] == [-2]
    overlap = Overlap.of([(str(path), footer) for path, footer in files], TWO.row_key)
    cache = ReadCache(1 << 20)
    found = [member(TWO, pair).files_of(overlap, reading(files), cache) for pair in pairs]
    assert all(i % 2 in positions for i, positions in enumerate(found))
    assert sum(map(len, found)) < len(pairs) * 1.05


def test_a_filter_over_the_first_fields_knows_whole_keys_and_their_beginnings(tmp_path):
    """Whole keys are asked one by one and many at once. A file with a filter over whole keys may have any beginning."""
    schema = Schema({"b": "string", "a": "int32"}, values={"v": "int64"})
    shares = [range(0, 300, 2), range(0, 300, 3), range(150, 300)]
    files = [
        written(tmp_path, schema, [(f"k{n:03d}", a) for n in share for a in range(40)], bloom_fields=1)
        for share in shares
    ]
    whole = written(tmp_path, schema, [(f"k{n:03d}", 1) for n in range(0, 300, 7)])
    overlap = Overlap.of([(str(path), footer) for path, footer in (*files, whole)], schema.row_key)
    assert {one.over for part in overlap.parts for one in part.filters} == {-1, -2}
    wrong = 0
    for n in range(300):
        having = [position for position, share in enumerate(shares) if n in share]
        inside = [having + [len(files)] * (n % 7 == 0), [*having, len(files)]]
        for values, there in ((f"k{n:03d}", 1), inside[0]), ((f"k{n:03d}",), inside[1]):
            asked = member(schema, values)
            found = asked.files_of(overlap, reading([*files, whole]), ReadCache(1 << 20))
            assert found == in_place([*files, whole], asked)
            # No key of the last file is above its last one.
            assert set(there) - set(found) <= ({len(files)} if n > 294 and len(values) == 1 else set())
            wrong += len(set(found) - set(there))
    assert wrong < 20
    path, footer = files[0]
    plain = [(f"k{n:03d}", 1) for n in range(300)]
    keys = [schema.codec.encode(key) for key in plain]
    opened = OpenFile(None, "name", path.as_uri(), footer, path, None)
    members = HashedKeys(schema.row_key, schema.codec.decode_columns(keys), keys)
    (group, *_) = footer.groups
    known = members.may_be_in(PagedFile(opened, schema, files_kept_in()), group, range(len(keys)))
    with path.open("rb") as stream:
        assert known.tolist() == [member(schema, key).may_be_in(parts_of(stream), group, {}) for key in plain]


def test_a_filter_over_keys_of_other_fields_is_not_asked(tmp_path):
    """As in a file that was exported from a table of another key, and attached to this one."""
    path, _ = written(tmp_path, TWO, [(1, "x")])
    content = path.read_bytes()
    other = Schema({"a": "int32"}, {"b": "string"}, {"v": "int64"})
    footer = read_footer(content[-8 - int.from_bytes(content[-8:-4], "little") :], other, "file")
    assert [group.key_filter for group in footer.groups] == [None]
    assert in_place([(path, footer)], member(other, (1,))) == [0]


def test_a_filter_of_an_unknown_kind_has_every_key(schema, tmp_path):
    path, footer = written(tmp_path, schema, keys_of(schema, range(10)))
    (place,) = (place for _, place in filters_of(footer.groups[0], schema.row_key))
    content = bytearray(path.read_bytes())
    content[place[0]] ^= 0xFF
    Path(path).write_bytes(content)
    overlap = Overlap.of([(str(path), footer)], schema.row_key)
    (absent,) = keys_of(schema, [1])
    asked = member(schema, (*absent[:-1], absent[-1] + "x"))
    cache = ReadCache(1 << 20)
    assert asked.files_of(overlap, reading([(path, footer)]), cache) == in_place([(path, footer)], asked) == [0]
    assert cache.get(CacheKind.FILTERS, overlap.parts[0].filters[0].cache_key[1]) is not None


def test_the_first_probe_of_a_filter_is_one_round_trip(schema, tmp_path):
    """It takes two if there are as many bytes between header and blocks as blocks, since the guessed size is wrong."""
    path, footer = written(tmp_path, schema, keys_of(schema, range(100)))
    ((over, (begin, length)),) = filters_of(footer.groups[0], schema.row_key)
    stored = path.read_bytes()[begin : begin + length]
    size = 1 << length.bit_length() - 1
    for padding, trips in (0, 1), (5, 1), (size, 2):
        content = stored[:-size] + bytes(padding) + stored[-size:]
        asked = []

        def read(places, content=content, asked=asked):
            asked.append(places)
            return [content[offset : offset + count] for offset, count in places]

        for key in keys_of(schema, range(100)):
            hashed = member(schema, key)._hashes[over]
            assert _may_hold(hashed, _block(read, (0, len(content)), hashed, {}))
        assert len(asked) == 100 * trips


@pytest.mark.parametrize("every", [1, 300])
def test_many_keys_asked_at_once_answer_as_one_by_one(schema, every, tmp_path):
    """By whole filters where they are many, by a block each where they are few; and by filters that are kept."""
    path, footer = written(tmp_path, schema, keys_of(schema, range(0, 20_000, 7)))
    plain = sorted(keys_of(schema, range(0, 20_000, every)))
    keys = [schema.codec.encode(key) for key in plain]
    files = files_kept_in()
    opened = OpenFile(None, "name", path.as_uri(), footer, path, None)
    for _ in range(2):
        members = HashedKeys(schema.row_key, schema.codec.decode_columns(keys), keys)
        for position, group in enumerate(footer.groups):
            low, high = footer.fences.starts[position], footer.fences.ends[position]
            among = range(bisect_left(keys, low), bisect_left(keys, high))
            known = members.may_be_in(PagedFile(opened, schema, files), group, among)
            with path.open("rb") as stream:
                one_by_one = [member(schema, plain[i]).may_be_in(parts_of(stream), group, {}) for i in among]
            assert known.tolist() == one_by_one
            # From now on the filter is kept, as a lookup among files that overlap keeps it.
            ((_, place),) = filters_of(group, schema.row_key)
            blocks = path.read_bytes()[place[0] : place[0] + place[1]]
            files.cache.keep(CacheKind.FILTERS, ("name", place[0]), blocks[len(blocks) - len(blocks) // 32 * 32 :], 1)
