"""Small inputs that stand for much are refused in bounded memory: files, lines, documents, expressions and values.

Memory is measured as in :mod:`tests.adversarial.bounded`, in processes of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.errors import SchemaMismatchError
from tests.adversarial import arrow_bombs, bounded, growing_expressions, memory_cases
from tests.soaked import few

LIMIT_MIB = 64


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


def test_json_of_two_gigabytes_is_refused_before_it_is_read(tmp_path):
    figures = bounded.run("documents", tmp_path, limit_mib=0)
    assert figures.pop("manifest.ndjson") == "3 rows, 1 pins", "it is derived from the log"
    del figures["peak_mib"]
    assert len(figures) == 3
    for name, said in figures.items():
        assert f"{name} has 2147483648 bytes, and Lakebed puts at most" in said


def test_ten_values_of_two_hundred_megabytes_are_refused(tmp_path):
    schema = memory_cases.lakebed.Schema({"k": "int64"}, values={"v": "binary"})
    table = memory_cases.lakebed.create(str(tmp_path / "lake")).create_table("t", schema)
    rows = memory_cases.pa.table({"k": range(10), "v": [bytes(200_000_000)] * 1 + [b""] * 9})
    with pytest.raises(SchemaMismatchError, match=r"the row takes 2000000\d\d bytes, most of them in column v"):
        table.write(rows)
    assert table.count().rows == 0


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


@pytest.mark.parametrize("arguments", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_no_expression_takes_much_more_than_its_rows_whatever_its_functions(arguments):
    """Every function of the engine with large arguments, in predicates, generated fields, constants and queries."""
    command = [sys.executable, str(Path(growing_expressions.__file__)), str(arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    *large, counted = map(json.loads, ran.stdout.splitlines())
    assert large == []
    assert counted["accepted"] > 60 * arguments
    assert counted["refused"] > 60 * arguments


@pytest.mark.parametrize(
    ("format", "reason"), few([("csv", "line 2: "), ("jsonl", "line 1 has more than 134,217,728 bytes")], 1)
)
def test_a_compressed_line_of_half_a_gigabyte_is_refused_in_the_memory_of_the_limit(tmp_path, format, reason):
    assert reason in bounded.run(f"line-{format}", tmp_path, limit_mib=LIMIT_MIB)["said"]
