"""What a path holds follows the setting memory_limit_bytes, whatever its input decodes to.

Each case runs in a process of its own (:mod:`tests.adversarial.bounded`, which says what is measured), under the
smallest limit that there is. It may take that and 300 MiB. Where single values are large, eight times the largest
stand in place of the limit, if that is more.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from lakebed.errors import SchemaMismatchError
from tests.adversarial import bounded, memory_cases

LIMIT_MIB = 64
LARGE = {"skewed": 8 * 60}
"""Of inputs with large values, what stands in place of the limit."""

ROWS = {"fuse": 400, "bomb": 2000, "skewed": 50_000, "wide": 20_400, "lists": 500, "texts": 1500, "zeros": 16_384}
ROWS |= {"columns": 4000, "megabytes": 2220, "late": 2220}
READ = {"merge": 4440, "scan": 4440, "reverse": 4440, "where": 1480, "limit": 5, "get": 58, "values": 80}
"""Of two runs of megabytes, what each path gives."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("memory")


@pytest.fixture
def run(folder):
    """Runs a case, on an input and a table that are made when they are needed."""
    made = functools.partial(_made, folder)

    def act(path, name):
        made(name)
        if path not in ("ingest", "map"):
            _ingested(folder, name)
        return bounded.run(f"{path}-{name}", folder, limit_mib=LIMIT_MIB, more_mib=_more(name))

    return act


def _more(name: str) -> int:
    return max(0, LARGE.get(name, 0) - LIMIT_MIB)


def _made(folder: Path, name: str) -> None:
    if not (folder / f"{name}.parquet").exists():
        bounded.run(f"make-{name}", folder, limit_mib=4000)


@functools.cache
def _ingested(folder: Path, name: str) -> dict:
    return bounded.run(f"ingest-{name}", folder, limit_mib=LIMIT_MIB, more_mib=_more(name))


def test_references_to_one_text_are_ingested_in_the_memory_of_the_limit(run, folder):
    """And the file is a few kilobytes."""
    _made(folder, "fuse")
    assert (folder / "fuse.parquet").stat().st_size < 10_000
    assert _ingested(folder, "fuse")["rows"] == 2 * ROWS["fuse"]


@pytest.mark.parametrize("name", ["fuse"])
def test_a_bulk_import_keeps_to_the_limit(run, name):
    assert run("map", name)["rows"] == ROWS[name]


@pytest.mark.parametrize("path", sorted(READ))
def test_files_that_overlap_with_rows_of_a_megabyte_are_read_in_the_memory_of_the_limit(run, path):
    assert run(path, "megabytes")["rows"] == READ[path]


def test_ten_values_of_two_hundred_megabytes_are_refused(tmp_path):
    schema = memory_cases.lakebed.Schema({"k": "int64"}, values={"v": "binary"})
    table = memory_cases.lakebed.create(str(tmp_path / "lake")).create_table("t", schema)
    rows = memory_cases.pa.table({"k": range(10), "v": [bytes(200_000_000)] * 1 + [b""] * 9})
    with pytest.raises(SchemaMismatchError, match=r"the row takes 2000000\d\d bytes, most of them in column v"):
        table.write(rows)
    assert table.count().rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ROWS) - {"fuse", "megabytes"}))
def test_an_ingest_keeps_to_the_limit(folder, name):
    _made(folder, name)
    assert _ingested(folder, name)["rows"] == 2 * ROWS[name]


@pytest.mark.slow
def test_values_that_a_setting_allows_take_eight_times_the_largest(folder):
    assert bounded.run("write-200000000", folder, limit_mib=LIMIT_MIB, more_mib=8 * 191)["rows"] == 10
