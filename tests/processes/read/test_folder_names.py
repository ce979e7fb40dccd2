"""Folders of any name: every way to read gives the rows of the table, whatever an engine would make of its path."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import KeyRange, Latest, Schema
from lakebed.files.parquet import open_files
from tests.soaked import chosen
from tests.workers import in_process

SCHEMA = Schema({"k": "int64"}, values={"region": "string", "K_": "int64"})
WHOLE = [(1, "us", 1), (2, None, 20), (3, "de", 3), (4, "it", 40)]
REMOVED = [(1, "us", 1), (3, "de", 3), (4, "fr", 4)]
TABLES = {"merged": WHOLE, "removed": REMOVED}

PARTS = [
    "region=eu", "k=3", "K_=7", "k=__HIVE_DEFAULT_PARTITION__", "*", "**", "?", "[x]", "[!x]", "[", "]", "{a,b}",
    "{1..3}", "%41", "%2F", "%", "#", "&", "=", ";", ":", "|", "$HOME", "~", "-", "+", " ", "'", '"', "`", "\\", "_",
    ".", "\n", "\t", "\x01", "\x7f", "é", "e\u0301", "ß", "日本", "😀", "\u2028", "x",
]  # fmt: skip
"""What file systems allow in a name, and some engine or shell interprets."""

NAMES = (
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("".join).filter(lambda name: name not in (".", ".."))
)


def fill(lake: lakebed.Instance) -> None:
    """Make a table with overlapping files, of which engines read a merged copy, and one with a file that is not live as
    a whole.
    """
    merged = lake.create_table("merged", SCHEMA, merge=Latest())
    removed = lake.create_table("removed", SCHEMA)
    given = {"k": [1, 2, 3, 4], "region": ["us", None, "de", "fr"], "K_": [1, 2, 3, 4]}
    for table in (merged, removed):
        table.write(pa.table(given, SCHEMA.arrow))
    merged.write(pa.table({"k": [2, 4], "region": [None, "it"], "K_": [20, 40]}, SCHEMA.arrow))
    removed.remove(KeyRange(2, 3))


def by_datafusion(table: lakebed.Table) -> pa.Table:
    context = datafusion.SessionContext()
    table.register(context, "t")
    return context.sql("SELECT * FROM t").to_arrow_table()


WAYS: dict[str, Callable[[lakebed.Instance, lakebed.Table], pa.Table]] = {
    "get": lambda _, table: pa.concat_tables([table.get(key) for key in range(1, 5)]),
    "get_many": lambda _, table: table.get_many([1, 2, 3, 4]),
    "scan": lambda _, table: table.scan(where="k > 0").read_all(),
    "sample": lambda _, table: table.sample(10),
    "sql": lambda lake, table: lake.sql(f"SELECT * FROM {table.name}").read_all(),
    "join": lambda lake, table: lake.sql(f"SELECT a.* FROM {table.name} a JOIN {table.name} b USING (k)").read_all(),
    "duckdb": lambda _, table: table.to_duckdb().to_arrow_table(),
    "duckdb, filtered": lambda _, table: table.to_duckdb().filter("k > 0").to_arrow_table(),
    "polars": lambda _, table: table.lazy_polars().collect().to_arrow(),
    "pandas": lambda _, table: pa.Table.from_pandas(table.to_pandas(), SCHEMA.arrow),
    "datafusion": lambda _, table: by_datafusion(table),
}


def rows(found: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def check(lake: lakebed.Instance) -> None:
    for name, wanted in TABLES.items():
        for way, read in WAYS.items():
            assert rows(read(lake, lake.table(name))) == wanted, (name, way)


@contextmanager
def temporary_folder(folder: Path):
    """Let new temporary files, also those of child processes, be in this folder."""
    known, before = dict(open_files._folders), os.environ.get("TMPDIR")
    open_files._folders.clear()
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        open_files._folders.clear()
        open_files._folders.update(known)
        tempfile.tempdir = before
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


@contextmanager
def hostile(tmp_path: Path, name: str):
    """Yield an instance below a folder of this name, which a copy of it surrounds, as does that of temporary files."""
    top = Path(tempfile.mkdtemp(dir=tmp_path))
    (top / "data" / name).mkdir(parents=True)
    (top / "temporary" / name).mkdir(parents=True)
    with temporary_folder(top / "temporary" / name):
        lake = lakebed.create(str(top / "data" / name / "lake"))
        fill(lake)
        for other in {"x", "xx", "a", "b", "A", "region=eux", "deep/er"} - {name}:
            shutil.copytree(top / "data" / name, top / "data" / other, dirs_exist_ok=True)
        yield lake


@settings(max_examples=settings().max_examples // 5, suppress_health_check=list(HealthCheck))
@given(name=NAMES)
@example(name="region=eu")
@example(name="k=3")
@example(name="*")
@example(name="a\nb")
def test_no_folder_name_changes_what_an_engine_reads(tmp_path, name):
    with hostile(tmp_path, name) as lake:
        check(lake)


@pytest.mark.parametrize(
    "name",
    chosen(["region=eu", "*", "[", "{a,b}%41#?", "_h", ".h", "a\nb", "\\*"], "region=eu", "{a,b}%41#?", "a\nb", "\\*"),
)
def test_no_folder_name_changes_what_is_exported_attached_and_compacted(tmp_path, name):
    with hostile(tmp_path, name) as lake, in_process(lake) as pipeline:
        for format in ("parquet", "csv", "json"):
            target = Path(tempfile.mkdtemp(dir=tmp_path)) / name / "export"
            pipeline.export("merged", str(target), format=format)
            back = lake.create_table(f"from_{format}", SCHEMA)
            for file in target.rglob(f"*.{format}"):
                if file.name != "_manifest.json":
                    back.write(str(file))
            assert rows(back.scan().read_all()) == WHOLE, format
        lake.create_table("attached", SCHEMA)
        pipeline.export("removed", str(tmp_path / "plain" / name))
        pipeline.attach("attached", [str(file) for file in (tmp_path / "plain" / name).rglob("*.parquet")])
        assert rows(lake.table("attached").to_duckdb().to_arrow_table()) == REMOVED
        for table in TABLES:
            pipeline.compact(table, strategy="full")
        check(lake)


def test_links_and_dots_in_a_path_change_nothing(tmp_path):
    with hostile(tmp_path, "k=3") as lake:
        folder = Path(lake.url.removeprefix("file://").replace("%3D", "="))
        (tmp_path / "*").symlink_to(folder)
        for path in (f"{folder}/../../k=3/lake", f"{folder}//", str(tmp_path / "*")):
            check(lakebed.open(path))
