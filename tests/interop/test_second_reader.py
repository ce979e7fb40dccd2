"""The reader of examples/second_reader.py, which knows docs/format.md alone, gives the rows that Lakebed gives."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from examples import second_reader
from lakebed import (
    AddField,
    AgeOff,
    Aggregate,
    DropField,
    First,
    InProcess,
    KeyRange,
    Latest,
    Pipeline,
    RenameField,
    Schema,
    SetFilter,
    WidenField,
)
from lakebed.errors import NotRetainedError
from lakebed.model.state.transactions import ProposeSplit
from lakebed.read.snapshot.snapshot import Snapshot
from lakebed.upkeep.retention.run import collect_garbage
from tests.golden.make import ARCHIVE, extract
from tests.golden.make import FOLDER as GOLDEN

SCRIPT = Path(second_reader.__file__)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """Tables of every merge mode that is data alone, and of every change that rows can go through."""
    lake = lakebed.create(str(tmp_path_factory.mktemp("lake")))
    pipeline = Pipeline(lake, launcher=InProcess(workers=1))
    for build in BUILT:
        build(lake, pipeline)
    return lake


def rows(keys, at=0, **columns):
    given = {name: list(values) for name, values in columns.items()}
    return pa.table({"k": list(keys), "at": [at] * len(keys)} | given)


def upkeep(pipeline, table):
    pipeline.compact(table, strategy="full")


def keyed(lake, name, values, **options):
    return lake.create_table(name, Schema({"k": "string"}, {"at": "int64"}, values), split_points=["m"], **options)


def all_rows(lake, pipeline):
    """Splits, joins, removals, fences, growth, renaming, a restore and compactions, in a table that keeps all rows."""
    table = keyed(lake, "all_rows", {"v": "int32", "gone": "string"}, settings={"schema_growth": "add"})
    table.write(rows("azbz", v=range(4), gone="wxyz"))
    table.write(rows("cmn", v=range(3), gone="uvw"))
    table.alter(RenameField("v", "n"), DropField("gone"), AddField("later", "float"))
    table.write(rows("ak", at=1, n=[1, 2], later=[0.5, None]))
    kept = table.version
    table.alter(WidenField("n", "int64"), WidenField("later", "double"))
    table.write(rows("dz", n=[2**40, 1], later=[1.5, 2.5], grown=["x", None]))
    split(table, "c")
    table.remove(KeyRange("b", "d"))
    upkeep(pipeline, table)
    table.write(rows("bcx", n=range(3), later=[None] * 3, grown="abc"))
    table.restore(kept)
    table.write(rows("yy", n=[7, 8], later=[None] * 2))
    upkeep(pipeline, table)


def split(table, letter):
    state = table.state()
    key = table.schema.codec.encode_key((letter,))
    table.commit(ProposeSplit({state.partitions.ids[state.partitions.position(key)]: (key,)}))


def newest(lake, pipeline):
    """Deletes, partial rows, and rows of a key after its delete."""
    table = keyed(lake, "newest", {"v": "int64", "w": "string"}, merge=Latest())
    table.write(rows("abcz", v=range(4), w="wxyz"))
    table.write(rows("ac", at=5, v=[10, 11], w=["p", None]))
    table.write(pa.table({"k": ["b", "q"], "at": [7, 8], "v": [77, 78]}), partial=True)
    table.delete(["c", "absent"])
    split(table, "b")
    upkeep(pipeline, table)
    table.write(rows("cz", at=-1, v=[1, 2], w=["again", "z"]))
    table.write(pa.table({"k": ["c", "d"], "at": [-9, 1], "w": ["part", "alone"]}), partial=True)
    table.delete(["z"])
    table.delete(where="v = 10")


def newest_by_sort_key(lake, pipeline):
    table = keyed(lake, "newest_by_sort_key", {"v": "int64"}, merge=Latest(by="sort_key"))
    table.write(rows("abz", at=5, v=range(3)))
    table.write(rows("ab", at=4, v=[10, 11]))
    table.write(rows("az", at=5, v=[20, 21]))
    upkeep(pipeline, table)
    table.write(rows("bz", at=9, v=[30, 31]))


def first_rows(lake, pipeline):
    table = keyed(lake, "first_rows", {"v": "int64"}, merge=First())
    table.write(rows("abz", v=range(3)))
    table.write(rows("acz", at=-4, v=[10, 11, 12]))
    upkeep(pipeline, table)
    table.write(rows("cd", v=[20, 21]))


FUNCTIONS = {
    "total": ("int64", "sum", lambda n: n),
    "times": ("int64", "product", lambda n: n + 1),
    "price": ("decimal128(10, 2)", "sum", lambda n: Decimal(n) / 4),
    "low": ("double", "min", lambda n: float("nan") if n % 2 else n / 2),
    "high": ("string", "max", lambda n: "bé\U0001f600"[n % 3]),
    "day": ("date32", "max", lambda n: dt.date(2020, 1, 1 + n)),
    "count": ("int64", "count", lambda _: 1),
    "oldest": ("string", "first", lambda n: f"f{n}"),
    "latest": ("string", "last", lambda n: f"l{n}"),
    "some": ("bool", "any", lambda n: n == 1),
    "every": ("bool", "all", lambda n: n != 1),
    "bits": ("int32", "or", lambda n: 1 << n),
    "text": ("string", "join", lambda n: f"t{n}"),
    "all_of": (pa.list_(pa.int64()), "list", lambda n: [n, n + 1]),
    "names": (pa.list_(pa.string()), "set", lambda n: [f"n{n % 2}", "n0"]),
    "by_name": (pa.map_(pa.string(), pa.int64()), "map_sum", lambda n: [("a", n), (f"b{n % 2}", 1)]),
    "most": (pa.map_(pa.string(), pa.int64()), "map_max", lambda n: [("a", n)]),
}


def aggregates(lake, pipeline):
    values = {name: kind for name, (kind, _, _) in FUNCTIONS.items()}
    merge = Aggregate({name: function for name, (_, function, _) in FUNCTIONS.items()})
    table = keyed(lake, "aggregates", values, merge=merge)
    for turn in range(4):
        made = {
            name: pa.array([of(turn), None, of(turn + 1)], table.schema.arrow.field(name).type)
            for name, (_, _, of) in FUNCTIONS.items()
        }
        table.write(pa.table({"k": ["a", "b", "a" if turn % 2 else "z"], "at": [0, 0, turn % 2]} | made))
        if turn == 2:
            table.alter(RenameField("total", "sum of all"))
            FUNCTIONS["sum of all"] = FUNCTIONS.pop("total")
            upkeep(pipeline, table)


def greatest(lake, pipeline):
    """The query of a custom mode, which a reader runs over all rows of a partition, merged before or not."""
    query = "SELECT k, at, max(v) AS v, min(w) AS w FROM rows GROUP BY k, at"
    table = keyed(lake, "greatest", {"v": "int64", "w": "string"}, merge=lakebed.Custom(sql=query))
    table.write(rows("abz", v=range(3), w="xyz"))
    table.write(rows("acz", v=[10, 11, None], w=["w", None, "a"]))
    upkeep(pipeline, table)
    table.write(rows("cz", v=[20, 21], w="uv"))


def filtered(lake, pipeline):
    table = keyed(lake, "filtered", {"v": "int64", "w": "string"})
    table.write(rows("abcz", v=[1, 2, None, 4], w="wxyz"))
    table.alter(SetFilter("v >= 2 AND w <> 'z'"))
    table.write(rows("abz", v=[3, 1, 5], w="abc"))
    upkeep(pipeline, table)
    table.alter(SetFilter(None))


def aged(lake, pipeline):
    days = {"day": "date32"}
    table = lake.create_table("aged", Schema({"k": "string", **days}, values={"v": "int64"}), merge=Latest())
    now = dt.datetime.now(dt.UTC).date()
    table.write(pa.table({"k": list("abc"), "day": [dt.date(2020, 1, 1), now, dt.date(1960, 1, 1)], "v": [1, 2, 3]}))
    table.alter(AgeOff("day", days=30))
    table.write(pa.table({"k": list("ab"), "day": [dt.date(2020, 1, 2), now], "v": [4, 5]}))
    upkeep(pipeline, table)


def truncated(lake, pipeline):
    """Its first entries are deleted, so that a reader begins with a retained checkpoint."""
    at_once = {"history_s": 0, "log_s": 0, "orphan_age_s": 0}
    table = keyed(lake, "truncated", {"v": "int64"}, settings=at_once)
    for turn in range(8):
        table.write(rows("az", at=turn, v=[turn, turn]))
        if turn % 3 == 1:
            upkeep(pipeline, table)
            for _ in range(3):
                collect_garbage(table)


def wide(lake, pipeline):
    """More partitions than a log entry names, so that references are in a sidecar; keys of several fields."""
    key = {"n": "int32", "id": "uuid", "x": "double", "m": "decimal128(6, 2)", "b": "bool", "t": "time32[s]"}
    count = 1030
    table = lake.create_table("wide", Schema(key), split_points=range(1, count))
    for turn in range(2):
        # A read makes a plan for each partition with several files, so few have them.
        numbers = range(-3, 50 if turn else count)
        table.write(
            pa.table(
                {
                    "n": pa.array(numbers, pa.int32()),
                    "id": pa.array([bytes([turn, n % 256]) * 8 for n in numbers], pa.binary(16)).cast(pa.binary(16)),
                    "x": [float("nan") if n % 7 == 0 else -n / 3 for n in numbers],
                    "m": pa.array([Decimal(n - 500) / 4 for n in numbers], pa.decimal128(6, 2)),
                    "b": [n % 2 == 0 for n in numbers],
                    "t": pa.array([n + 3 for n in numbers], pa.int32()).cast(pa.time32("s")),
                }
            )
        )


def plain(value):
    """A value as text by which equal rows compare equal: NaN, and columns whose order differs, too."""
    if isinstance(value, dict):
        return str(sorted((name, plain(item)) for name, item in value.items()))
    if isinstance(value, list | tuple):
        return str([plain(item) for item in value])
    return repr(value)


def shown(table, version):
    """A version of a table; of an index, its entries, which are not read otherwise."""
    if table.state().view is None or table.state().view.index is None:
        return table.at(version)
    return Snapshot(table.log.at(version).state, table.reader, table.storage)


def same_rows(root, table):
    """Compare each version of a table that is retained; return their number."""
    compared = 0
    for version in range(1, table.state().version + 1):
        try:
            expected = shown(table, version).scan().read_all().to_pylist()
        except NotRetainedError:
            continue
        found = second_reader.read(root, table.name, version)
        assert Counter(map(plain, found)) == Counter(map(plain, expected)), f"{table.name} at {version}"
        keys = table.schema.row_key_names
        assert [[plain(row.get(k)) for k in keys] for row in found] == [
            [plain(row.get(k)) for k in keys] for row in expected
        ], f"the order of {table.name} at {version}"
        compared += 1
    return compared


BUILT = (all_rows, newest, newest_by_sort_key, first_rows, aggregates, greatest, filtered, aged, truncated, wide)


@pytest.mark.parametrize("name", [build.__name__ for build in BUILT])
def test_the_second_reader_gives_the_rows_of_every_version(lake, name):
    root = Path(lake.url.removeprefix("file://"))
    assert same_rows(root, lake[name]) >= (1 if name == "truncated" else 3)


@pytest.mark.slow
def test_the_second_reader_reads_every_version_of_the_golden_tables(tmp_path):
    """Of each table, tests/golden/test_kit.py has it read the latest version and four others."""
    root = extract(GOLDEN / ARCHIVE, tmp_path) / "lake"
    lake = lakebed.open(str(root))
    names = list(lake)
    assert len(names) >= 5
    assert {name: same_rows(root, lake[name]) > 0 for name in names} == dict.fromkeys(names, True)


def test_the_second_reader_imports_neither_lakebed_nor_its_engine(lake):
    code = f"import runpy, sys; runpy.run_path({str(SCRIPT)!r}, run_name='x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"lakebed", "datafusion", "obstore", "msgspec"} & set(done.stdout.split())
    assert len(SCRIPT.read_text("utf-8").splitlines()) <= 520


def test_the_second_reader_prints_rows_as_json(lake):
    root = lake.url.removeprefix("file://")
    words = [sys.executable, str(SCRIPT), root, "first_rows"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[0]) == {"k": "a", "at": 0, "v": 0}


def test_the_second_reader_refuses_what_it_does_not_know(lake):
    table = lake.create_table("lengths", Schema({"k": "string"}, values={"v": "int64"}))
    table.alter(SetFilter("length(k) > v"))
    table.write(pa.table({"k": ["a"], "v": [1]}))
    with pytest.raises(second_reader.UnreadableError, match=r"SQL that this reader lacks: length\(k\) > v"):
        second_reader.read(Path(lake.url.removeprefix("file://")), "lengths")
