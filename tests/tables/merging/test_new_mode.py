"""A merge mode is one file: the code that handles rows asks it for its properties, and no other module names it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

import lakebed
from benchmarks.session_here import SessionHere
from lakebed import Pipeline, Schema
from lakebed.errors import Code, UsageError
from lakebed.model import merge_modes
from lakebed.model.merge_modes import MergeMode, mode_of


@dataclass(frozen=True, slots=True)
class Earliest(MergeMode):
    """One row per row key: that with the least sort key, the first to arrive of several."""

    stored_name: ClassVar[str] = "earliest"
    one_row_per_key: ClassVar[bool] = True
    kept: ClassVar[int | None] = 0

    @property
    def by_sort_key(self):
        return True

    def check(self, schema):
        if not schema.sort_key:
            raise Code.MERGE_MODE_INVALID("Earliest() needs a sort key")


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setitem(merge_modes.MODES, "earliest", Earliest)


@pytest.fixture
def table(lake):
    schema = Schema({"k": "string"}, {"at": "int64"}, {"v": "int64"})
    return lake.create_table("t", schema, merge=Earliest(), split_points=["m"])


WRITES = [
    {"k": ["a", "b", "z"], "at": [5, 5, 5], "v": [1, 2, 3]},
    {"k": ["a", "b", "z"], "at": [4, 6, 5], "v": [11, 12, 13]},
    {"k": ["c", "z"], "at": [0, -1], "v": [21, 22]},
    *({"k": ["a"], "at": [9], "v": [turn]} for turn in range(40)),
]
EXPECTED = [("a", 4, 11), ("b", 5, 2), ("c", 0, 21), ("z", -1, 22)]


def rows_of(found):
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_new_mode_is_written_read_compacted_and_queried(lake, table):
    for rows in WRITES:
        table.write(pa.table(rows))
    for _ in range(2):
        assert rows_of(table.scan().read_all()) == EXPECTED
        assert [rows_of(table.get(key)) for key, *_ in EXPECTED] == [[row] for row in EXPECTED]
        assert rows_of(lake.sql("SELECT * FROM t WHERE v > 2 ORDER BY k").read_all()) == [
            row for row in EXPECTED if row[2] > 2
        ]
        assert table.count(exact=True).rows == len(EXPECTED)
        Pipeline(lake, SessionHere()).compact(table, strategy="full")
    assert sum(file.rows for file in table.state().referenced().values()) == len(EXPECTED)
    assert rows_of(lakebed.open(lake.url)["t"].scan().read_all()) == EXPECTED


def test_a_new_mode_refuses_what_it_does_not_take(lake, table):
    assert mode_of(json.loads(json.dumps(Earliest().document()))) == Earliest()
    with pytest.raises(UsageError) as caught:
        table.delete(["a"])
    assert caught.value.code is Code.MERGE_MODE_MISMATCH
    with pytest.raises(UsageError) as caught:
        lake.create_table("u", Schema({"k": "string"}), merge=Earliest())
    assert caught.value.code is Code.MERGE_MODE_INVALID


def test_no_module_but_those_of_merging_asks_which_mode_it_is():
    modes = "KeepAll|Latest|First|Aggregate|Custom"
    asks = re.compile(rf"isinstance\([^)]*\b({modes})\b|case ({modes})\(|(==|!=|is|is not) (KEEP_ALL|({modes})\()")
    assert asks.search("if isinstance(state.merge, KeepAll):")
    source = Path(lakebed.__file__).parent
    asking = {path.relative_to(source) for path in source.rglob("*.py") if asks.search(path.read_text("utf-8"))}
    assert {path.as_posix() for path in asking} <= {
        "model/merge_modes.py",
        "files/merging/custom_functions.py",
        "files/merging/row_merger.py",
    }
