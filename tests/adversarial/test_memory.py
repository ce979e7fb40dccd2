"""Memory is bounded by the setting memory_limit_bytes, whatever the input decodes to.

Each case runs in a process of its own (:mod:`tests.adversarial.bounded` defines the measure), under the smallest limit.
It may use the limit plus 300 MiB. If single values are large, eight times the largest (sixteen times if there are many)
replaces the limit, if that is more.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.adversarial import bounded
from tests.soaked import few

LIMIT_MIB = 64
LARGE = {"skewed": 8 * 60}
"""Replaces the limit for inputs with large values."""

ROWS = {"fuse": 400, "bomb": 2000, "skewed": 50_000, "wide": 20_400, "lists": 500, "texts": 1500, "zeros": 16_384}
ROWS |= {"columns": 4000, "megabytes": 2220, "late": 2220}
READ = {"merge": 4440, "scan": 4440, "reverse": 4440, "where": 1480, "limit": 5, "get": 58, "values": 80}
"""The result of each operation on two runs of megabytes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("memory")


@pytest.fixture
def run(folder):
    """Run a case, on an input and a table that are made on demand."""
    made = functools.partial(_made, folder)

    def act(path, name):
        made(name)
        if path not in ("ingest", "map", "attach"):
            _ingested(folder, name)
        return bounded.run(f"{path}-{name}", folder, limit_mib=LIMIT_MIB, more_mib=_more(name))

    return act


def _more(name: str) -> int:
    return max(0, LARGE.get(name, 0) - LIMIT_MIB)


def _made(folder: Path, name: str) -> None:
    if not (folder / f"{name}.parquet").exists() and not (folder / name).exists():
        bounded.run(f"make-{name}", folder, limit_mib=4000)


@functools.cache
def _ingested(folder: Path, name: str) -> dict:
    return bounded.run(f"ingest-{name}", folder, limit_mib=LIMIT_MIB, more_mib=_more(name))


def test_references_to_one_text_are_ingested_in_the_memory_of_the_limit(run, folder):
    """The file has only a few kilobytes."""
    _made(folder, "fuse")
    assert (folder / "fuse.parquet").stat().st_size < 10_000
    assert _ingested(folder, "fuse")["rows"] == 2 * ROWS["fuse"]


@pytest.mark.parametrize("name", ["fuse"])
def test_a_bulk_import_keeps_to_the_limit(run, name):
    assert run("map", name)["rows"] == ROWS[name]


SLOW = ("reverse", "where")
"""Tested nightly: these read like a scan."""


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * (path in SLOW)) for path in sorted(READ)]
)
def test_files_that_overlap_with_rows_of_a_megabyte_are_read_in_the_memory_of_the_limit(run, path):
    assert run(path, "megabytes")["rows"] == READ[path]


@pytest.mark.parametrize(
    ("format", "files"),
    [("json", 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("csv", 1), ("parquet", 2)))],
)
def test_an_export_keeps_to_the_limit(run, format, files):
    """Rows of a megabyte go to Parquet below."""
    assert run(format, "fuse")["rows"] == files * ROWS["fuse"]


@pytest.mark.parametrize(("format", "files"), few([("parquet", 2), ("json", 1)], 1))
def test_an_export_of_rows_of_a_megabyte_keeps_to_the_limit(run, format, files):
    assert run(format, "megabytes")["rows"] == files * ROWS["megabytes"]


def test_a_file_that_is_attached_is_read_in_the_memory_of_the_limit(run):
    assert run("attach", "attachable")["rows"] == ROWS["fuse"]


@pytest.mark.parametrize("name", ["fuse", pytest.param("megabytes", marks=pytest.mark.slow)])
def test_a_deep_verification_keeps_to_the_limit(run, name):
    assert run("deep", name)["findings"] == 0


def test_a_part_of_a_checkpoint_that_decodes_to_more_than_it_can_have_is_not_decoded(folder):
    _made(folder, "segment")
    figures = bounded.run("segment", folder, limit_mib=0)
    assert figures["stored"] < 50_000
    assert "declares a decoded size of 800000000 bytes" in figures["said"]


@pytest.mark.parametrize(("path", "rows"), [("scan", 2 * 275), ("limit", 5)])
def test_lists_of_a_megabyte_are_read_in_the_memory_of_the_limit(run, path, rows):
    """A batch of few rows can still be large."""
    assert run(path, "short_lists")["rows"] == rows


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ROWS) - {"fuse", "megabytes"}))
def test_an_ingest_keeps_to_the_limit(folder, name):
    _made(folder, name)
    assert _ingested(folder, name)["rows"] == 2 * ROWS[name]


@pytest.mark.slow
def test_values_that_a_setting_allows_take_sixteen_times_the_largest(folder):
    """Ten of 191 MiB, merged: one of each input, and a few on the way into the file."""
    limit_mib = 8 * 191
    assert bounded.run("write-200000000", folder, limit_mib=limit_mib, more_mib=16 * 191 - limit_mib)["rows"] == 10
