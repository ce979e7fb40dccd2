"""Memory is bounded by the setting memory_limit_bytes, whatever the input decodes to.

Each case runs in a process of its own (:mod:`tests.adversarial.bounded` defines the measure), under the smallest limit.
It may use the limit plus 300 MiB. If single values are large, eight times the largest (sixteen times if there are many)
replaces the limit, if that is more.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.errors import SchemaMismatchError
from tests.adversarial import arrow_bombs, bounded, growing_expressions, memory_cases

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


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """What became of every small Arrow file that decodes to much, by every way in."""
    folder, program = tmp_path_factory.mktemp("bombs"), str(Path(arrow_bombs.__file__))
    said = ""
    for step in ("make", "send"):
        ran = subprocess.run([sys.executable, program, step, str(folder)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[-4000:]
        said = ran.stdout
    return [json.loads(line) for line in said.splitlines()]


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


@pytest.mark.parametrize("format", ["parquet", pytest.param("csv", marks=pytest.mark.slow), "json"])
def test_an_export_keeps_to_the_limit(run, format):
    assert run(format, "fuse")["rows"] == 2 * ROWS["fuse"]


@pytest.mark.parametrize("format", ["parquet", pytest.param("json", marks=pytest.mark.slow)])
def test_an_export_of_rows_of_a_megabyte_keeps_to_the_limit(run, format):
    assert run(format, "megabytes")["rows"] == 2 * ROWS["megabytes"]


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


def test_json_of_two_gigabytes_is_refused_before_it_is_read(tmp_path):
    figures = bounded.run("documents", tmp_path, limit_mib=0)
    assert figures.pop("manifest.ndjson") == "3 rows, 1 pins", "it is derived from the log"
    del figures["peak_mib"]
    assert len(figures) == 3
    for name, said in figures.items():
        assert f"{name} has 2147483648 bytes, and Lakebed puts at most" in said


@pytest.mark.parametrize(("path", "rows"), [("scan", 2 * 275), ("limit", 5)])
def test_lists_of_a_megabyte_are_read_in_the_memory_of_the_limit(run, path, rows):
    """A batch of few rows can still be large."""
    assert run(path, "short_lists")["rows"] == rows


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
def test_values_that_a_setting_allows_take_sixteen_times_the_largest(folder):
    """Ten of 191 MiB, merged: one of each input, and a few on the way into the file."""
    limit_mib = 8 * 191
    assert bounded.run("write-200000000", folder, limit_mib=limit_mib, more_mib=16 * 191 - limit_mib)["rows"] == 10


def test_an_arrow_file_that_decodes_to_much_is_measured_before_it_is_decoded(sent):
    """Whatever makes it large: numbers, texts, columns, dictionaries, positions without bytes; by whatever way in."""
    assert len({(one["bomb"], one["way"]) for one in sent}) == len(sent) > 60
    allowed = arrow_bombs.LIMIT_MIB + bounded.ALLOWANCE_MIB
    assert [one for one in sent if one["mib"] > allowed] == []


def test_an_arrow_file_that_decodes_to_much_is_refused_with_a_reason(sent):
    harmless = ("inferred", "http keys")
    for one in sent:
        assert not one["said"].startswith(("BUG", "ok 5")), one
        if one["bomb"].startswith(("numbers", "long_text", "keys", "dictionary", "deltas", "nested")):
            assert "decodes to" in one["said"] or (one["way"] in harmless and one["said"].startswith("ok")), one


@pytest.mark.parametrize("arguments", [3, pytest.param(5, marks=pytest.mark.slow)])
def test_no_expression_takes_much_more_than_its_rows_whatever_its_functions(arguments):
    """Every function of the engine with large arguments, in predicates, generated fields, constants and queries."""
    command = [sys.executable, str(Path(growing_expressions.__file__)), str(arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    *large, counted = map(json.loads, ran.stdout.splitlines())
    assert large == []
    assert counted["accepted"] > 300
    assert counted["refused"] > 300


@pytest.mark.parametrize(
    ("format", "reason"), [("csv", "line 2: "), ("jsonl", "line 1 has more than 134,217,728 bytes")]
)
def test_a_compressed_line_of_half_a_gigabyte_is_refused_in_the_memory_of_the_limit(tmp_path, format, reason):
    assert reason in bounded.run(f"line-{format}", tmp_path, limit_mib=LIMIT_MIB)["said"]
