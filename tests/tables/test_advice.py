"""Messages and pages that a newcomer meets first: each names the fault once, and its own remedy."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import BadKeyError, Code, Error, SchemaMismatchError
from lakebed.model import types

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(tmp_path):
    schema = Schema({"k": "int64"}, values={"s": "struct<a: int64, b: struct<c: string>>"})
    return lakebed.create(str(tmp_path / "lake")).create_table("t", schema)


def test_a_trace_shows_an_error_once(table):
    with pytest.raises(SchemaMismatchError) as caught:
        table.write(pa.table({"k": pa.array([None, 1], pa.int64())}))
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("SchemaMismatchError:") == 1
    assert caught.value.__cause__ is None


def test_a_restated_error_is_not_raised_from_itself():
    """A trace that has both shows the same twice."""
    source = re.compile(r"raise (\w+)\.restated\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\) from \1(?!\.)")
    assert source.search('raise error.restated(f"{error.message}") from error')
    assert not [path for path in (ROOT / "src").rglob("*.py") if source.search(path.read_text("utf-8"))]
    cause = ValueError("why")
    with pytest.raises(Error) as caught:
        raise Code.VALUE_INVALID("what").restated("where: what") from cause
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("struct<a: int64>", "whose member b is missing"),
        ("struct<a: int64, b: struct<d: string>>", "whose member c is missing"),
        ("struct<a: int64, b: struct<c: string>, x: int64>", "which has no member x"),
        ("struct<b: struct<c: string>, a: int64>", "whose members are in another order"),
        ("string", "which is no form of it without loss"),
    ],
)
def test_a_struct_that_does_not_fit_is_refused_by_its_member(table, given, said):
    column = pa.nulls(1, Schema({"k": "int64"}, values={"s": given}).by_name["s"].type)
    with pytest.raises(SchemaMismatchError, match=said):
        table.write(pa.table({"k": [1], "s": column}))


def test_the_fault_of_a_member_is_found_within_lists_and_maps():
    found, wanted = (pa.struct([(name, pa.int64())]) for name in "xy")
    for around in (
        pa.list_,
        lambda kind: pa.map_(pa.string(), kind),
        lambda kind: pa.list_(kind, 2),
    ):
        assert "member y is missing" in types.member_fault(around(found), around(wanted))
        assert types.member_fault(around(found), around(found)) is None
    assert types.member_fault(pa.int64(), pa.string()) is None


def test_too_many_values_of_a_key_get_no_hint_of_its_prefixes(table):
    with pytest.raises(BadKeyError, match=r"a key has 1 value \(k \(int64\)\), not 3; for several keys use get_many"):
        table.get(1, 2, 3)


def test_no_two_pages_that_begin_with_an_instance_create_the_same_one():
    created = re.compile(r'^lake = lakebed\.create\("([^"]*)"', re.MULTILINE)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = [url for page in pages for url in created.findall(page.read_text("utf-8")) if "memory:" not in url]
    assert len(found) > 2
    assert len(set(found)) == len(found)
