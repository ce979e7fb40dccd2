"""What a narrow read asks of files that overlap: no page that it need not, and never fewer rows than there are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed import Schema
from lakebed.files.parquet import page_decoder
from lakebed.files.parquet.read_cache import ReadStatistics
from lakebed.model.keys import ALL_KEYS, EncodedRange, successor
from lakebed.read.rows.reader import Reader
from lakebed.storage import LocalStorage
from tests.soaked import each_once
from tests.tables.read.cases import TABLE, one_partition, stored

NUMBERS = Schema({"k": "int64"}, values={"v": "int64"})
FILES = 12


def reads(tmp_path, keys_of):
    """A reader, and a plan over files with these keys, each in pages of 100 rows."""
    storage = LocalStorage(tmp_path / "root", durability="none")
    files = []
    for number in range(FILES):
        keys = pa.array(keys_of(number), pa.int64())
        rows = pa.table({"k": keys, "v": pa.array([number] * len(keys), pa.int64())}, NUMBERS.arrow)
        files += stored(storage, NUMBERS, rows, tmp_path)

    def plan(keys=ALL_KEYS):
        return one_partition(tuple(files), keys, schema=NUMBERS)

    return Reader(storage, TABLE, lambda _file: True), plan


def scanned(reader, plan, limit):
    statistics = ReadStatistics()
    rows = reader.scan(plan, ["k", "v"], limit, statistics=statistics).read_all()
    return [tuple(row.values()) for row in rows.to_pylist()], statistics


@each_once(
    limit=[1, 7, 60, 100, 500, 6_000],
    keys_of=[
        lambda number: range(number, 12_000, 24),
        lambda number: range(0, 5_000, 10),
        # The largest file has its rows before the others', or far behind; or all are alone.
        lambda number: range(1_000) if number == 0 else range(900, 1_400),
        lambda number: range(5_000, 6_000) if number == 0 else range(number * 7, number * 7 + 300),
        lambda number: range(number * 1_000, number * 1_000 + 500),
        lambda number: [7] * 300,
    ],
)
def test_a_limit_gives_the_first_rows_however_they_are_shared_out(tmp_path, keys_of, limit):
    reader, plan = reads(tmp_path, keys_of)
    rows = sorted((key, number) for number in range(FILES) for key in keys_of(number))
    found, _ = scanned(reader, plan(), limit)
    assert [key for key, _ in found] == [key for key, _ in rows[:limit]]
    assert set(found) <= set(rows)
    begin = rows[len(rows) // 3][0]
    found, _ = scanned(reader, plan(EncodedRange(NUMBERS.codec.encode((begin,)))), limit)
    assert [key for key, _ in found] == [key for key, _ in rows if key >= begin][:limit]


@pytest.mark.parametrize("limit", [1, 5, 150, 2_000])
def test_a_limit_of_one_keys_rows_takes_the_first_of_all_files(tmp_path, limit):
    reader, plan = reads(tmp_path, lambda number: [7] * 100 if number == 0 else [1, *[7] * 100])
    key = NUMBERS.codec.encode((7,))
    for keys in (EncodedRange(key, successor(key)), EncodedRange(key, NUMBERS.codec.encode((9,)))):
        found, statistics = scanned(reader, plan(keys), limit)
        assert [key for key, _ in found] == [7] * min(limit, 100 * FILES)
        assert len(statistics.files) == FILES


@pytest.mark.parametrize("begin", [0, 9_003])
def test_with_a_limit_many_files_are_asked_for_keys_near_the_first_alone(tmp_path, begin):
    reader, plan = reads(tmp_path, lambda number: range(number, 24_000, 24))
    keys = EncodedRange(NUMBERS.codec.encode((begin,))) if begin else ALL_KEYS
    # Each of the 12 files has about 84 of the first thousand rows. A read of these and of as many more takes two pages
    # of each column, or three from the middle of a page. A read of all files from the first key on takes ten or more.
    assert scanned(reader, plan(keys), 1_000)[1].pages <= (3 if begin else 2) * 2 * FILES + 4


def test_all_files_are_decoded_at_once(tmp_path, monkeypatch):
    """To begin anew for each file costs more than a page does."""
    calls = []
    decode = page_decoder.decoded
    monkeypatch.setattr(page_decoder, "decoded", lambda cuts, *rest: calls.append(len(cuts)) or decode(cuts, *rest))
    reader, plan = reads(tmp_path, lambda number: range(number, 12_000, 24))
    keys = EncodedRange(NUMBERS.codec.encode((600,)), NUMBERS.codec.encode((900,)))
    found, statistics = scanned(reader, plan(keys), None)
    assert len(found) == sum(key % 24 < FILES for key in range(600, 900))
    assert calls == [FILES]
    assert len(statistics.files) == FILES
