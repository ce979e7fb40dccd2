"""The setting ``compression``: all that writes data files follows it, and all reads take files of every codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import lakebed
from lakebed import Pipeline
from lakebed.errors import Code, UsageError
from lakebed.upkeep.publish.run import current, publish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = lakebed.Schema({"k": "string"}, {"at": "int64"}, {"n": "int64", "text": "string", "tags": "list<string>"})
CODECS = {"zstd": "ZSTD", "lz4": "LZ4", "none": "UNCOMPRESSED"}
EVERY = [(one, other) for one in CODECS for other in CODECS if one != other]


@pytest.fixture
def table(lake: lakebed.Instance) -> lakebed.Table:
    return lake.create_table("t", SCHEMA)


def rows(numbers: range) -> list[dict[str, Any]]:
    return [{"k": f"{i:06d}", "at": i, "n": i % 3, "text": f"{i:08x}", "tags": ["tag"] * (i % 3)} for i in numbers]


def paths(table: lakebed.Table) -> list[str]:
    return [url.removeprefix("file://") for url in table.files().column("url").to_pylist()]


def codecs(table: lakebed.Table) -> list[str]:
    """The codec of each file; all of its column chunks have it."""
    return sorted(map(codec, paths(table)))


def codec(path: str) -> str:
    [found] = {chunk.compression for chunk in chunks(path)}
    return found


def chunks(path: str) -> Iterator[Any]:
    metadata = pq.read_metadata(path)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


def test_the_default_is_zstd_and_an_instance_has_its_own(lake: lakebed.Instance, table: lakebed.Table) -> None:
    table.write(rows(range(10)))
    lake.set(compression="lz4")
    table.write(rows(range(10)))
    table.set(compression="none")
    table.write(rows(range(10)))

    assert table.settings()["compression"] == "none"
    assert codecs(table) == ["LZ4", "UNCOMPRESSED", "ZSTD"]


@pytest.mark.parametrize("value", ["gzip", "ZSTD", "zstd(3)", "", 1, True])
def test_another_codec_is_refused(table: lakebed.Table, value: object) -> None:
    with pytest.raises(UsageError, match="compression must be one of zstd, lz4, none") as raised:
        table.set(compression=value)
    assert raised.value.code is Code.SETTING_INVALID


@pytest.mark.parametrize(("before", "after"), EVERY)
def test_what_writes_files_anew_uses_the_codec_in_force(
    lake: lakebed.Instance, table: lakebed.Table, before: str, after: str
) -> None:
    """A compaction, and a rewrite, which replaces only the files in which it changes rows."""
    table.set(compression=before)
    for start in (0, 1, 500):
        table.write(rows(range(start, start + 400)))
    with Pipeline(lake, launcher="this-thread") as pipeline:
        table.set(compression=after)
        assert codecs(table) == [CODECS[before]] * 3

        pipeline.rewrite("t", delete_where="at >= 800")
        assert codecs(table) == sorted([CODECS[before]] * 2 + [CODECS[after]])
        assert pipeline.compact("t", strategy="full").files_in == 3

    assert codecs(table) == [CODECS[after]]
    assert table.verify(files=True, deep=True).findings == ()
    assert table.count().rows == 400 + 400 + 300


def test_every_read_takes_files_of_all_codecs(lake: lakebed.Instance, table: lakebed.Table) -> None:
    """Three files with the same keys, so that each read merges all of them."""
    table.set(publish="iceberg")
    for name in CODECS:
        table.set(compression=name)
        table.write(rows(range(3000)))
    assert codecs(table) == sorted(CODECS.values())
    expected = [row for row in rows(range(3000)) for _ in CODECS]

    assert table.get("000700").to_pylist() == expected[2100:2103]
    assert table.get_many([f"{i:06d}" for i in range(0, 3000, 7)]).num_rows == 3 * 429
    assert table.scan(lakebed.KeyRange("000100", "000200")).read_all().to_pylist() == expected[300:600]
    assert table.scan().read_all().to_pylist() == expected
    assert table.scan(where="text = '000002bc'").read_all().to_pylist() == expected[2100:2103]
    assert lake.sql("SELECT sum(at) AS s FROM t").read_all()["s"].to_pylist() == [sum(row["at"] for row in expected)]
    publish(table)
    published = current(table)
    assert published is not None
    iceberg = StaticTable.from_metadata(published.metadata_location)
    assert iceberg.scan().to_arrow().sort_by("k").to_pylist() == expected
    for described in iceberg.inspect.files().to_pylist():
        sizes = dict(described["column_sizes"])
        for chunk in chunks(described["file_path"].removeprefix("file://")):
            if "." not in chunk.path_in_schema:
                assert sizes[SCHEMA.by_name[chunk.path_in_schema].id] == chunk.total_compressed_size


def test_exports_have_the_codec_of_the_table(lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path) -> None:
    table.set(compression="lz4")
    table.write(rows(range(100)))
    with Pipeline(lake, launcher="this-thread") as pipeline:
        pipeline.export("t", str(tmp_path / "out"))
    [path] = (tmp_path / "out").glob("*.parquet")

    assert codec(str(path)) == "LZ4"
    assert pq.read_table(path).cast(SCHEMA.arrow).equals(pa.Table.from_pylist(rows(range(100)), SCHEMA.arrow))
