"""Answers equal a sorted list of rows filtered in Python: every key type, any files in any partitions, any ranges."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import KeyRange, Schema
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.parquet.layout import Layout
from lakebed.model.files import NewFile
from lakebed.model.keys import EncodedRange, successor
from lakebed.model.settings import Settings
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import CreateTable, ProposeFiles, Rejected, Repeated, apply, resolve
from lakebed.read.rows.plan import plan
from lakebed.read.rows.reader import Reader
from lakebed.read.rows.request import ReadLimits
from lakebed.storage import LocalStorage
from lakebed.write.run import send_run

TABLE = "table-0001"

# Few values of each type, so that ranges meet them; the odd ones on purpose.
TEXTS = [
    "",
    "\0",
    "\0\0",
    "\0\xff",
    "'",
    '"',
    "a",
    "a\0",
    "a\0b",
    "a'b",
    "ab",
    "b",
    "é",
    "\ud7ff",
    "\uffff",
    "😀",
    "😀a",
]
BYTES = [
    b"",
    b"\x00",
    b"\x00\x01",
    b"\x00\xff",
    b"'",
    b"a",
    b"a\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\x00",
    b"\xff\xff",
]
NUMBERS = [-(2**31), -(2**31) + 1, -256, -1, 0, 1, 255, 2**31 - 2, 2**31 - 1]
DAY = dt.date(1970, 1, 1)
MOMENT = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - for fields without a zone
DAYS = [DAY + dt.timedelta(days=n) for n in (-700_000, -1, 0, 1, 20_000, 2_900_000)]
SECONDS = [-62_000_000_000, -1, 0, 1, 1_700_000_000, 250_000_000_000]

VALUES = {
    "string": TEXTS,
    "binary": BYTES,
    "int32": NUMBERS,
    "int64": [*NUMBERS, -(2**63), 2**63 - 2, 2**63 - 1],
    "date32": DAYS,
    "timestamp[s]": [MOMENT + dt.timedelta(seconds=n) for n in SECONDS],
    "timestamp[ms]": [MOMENT + dt.timedelta(seconds=n, milliseconds=m) for n in SECONDS for m in (0, 1, 999)],
    "timestamp[us, tz=UTC]": [
        MOMENT.replace(tzinfo=dt.UTC) + dt.timedelta(seconds=n, microseconds=m) for n in SECONDS for m in (0, 1)
    ],
    "timestamp[ns, tz=Europe/Berlin]": [MOMENT.replace(tzinfo=dt.UTC) + dt.timedelta(seconds=n) for n in (-5, 0, 7)],
}
KEYS = [(kind,) for kind in VALUES] + [
    ("string", "int32"), ("int64", "string"), ("binary", "binary"), ("date32", "timestamp[us, tz=UTC]", "string")
]  # fmt: skip


def schema_of(kinds):
    return Schema({f"k{i}": kind for i, kind in enumerate(kinds)}, {"s": "int64"}, {"v": "string"})


def keys_of(kinds):
    return st.tuples(*(st.sampled_from(VALUES[kind]) for kind in kinds))


@st.composite
def ranges_of(draw, kinds):
    """Bounds of any length, either end open or not, both inclusive or not, never upside down."""
    schema = schema_of(kinds)

    def bound():
        return draw(st.none() | keys_of(kinds).map(lambda key: key[: draw(st.integers(1, len(kinds)))]))

    match draw(st.sampled_from(["bounds", "prefix", "point"])):
        case "prefix":
            return KeyRange.prefix(*(bound() or draw(keys_of(kinds))))
        case "point":
            return KeyRange.prefix(*draw(keys_of(kinds)))
    low, high = bound(), bound()
    if low is not None and high is not None and schema.codec.encode(high) < schema.codec.encode(low):
        low, high = high, low
    return KeyRange(low, high, max_inclusive=draw(st.booleans()))


def holds(key_range, key):
    """What the range says, on tuples; text and bytes compare in Python as their encodings do."""
    low, high = key_range.min, key_range.max
    above = low is None or key[: len(low)] >= low
    if high is None:
        return above
    return above and (key[: len(high)] <= high if key_range.max_inclusive else key[: len(high)] < high)


@st.composite
def tables_of(draw):
    kinds = draw(st.sampled_from(KEYS))
    files = draw(st.lists(st.lists(keys_of(kinds), min_size=1, max_size=25), max_size=4))
    boundaries = draw(st.lists(keys_of(kinds).map(lambda key: key[: draw(st.integers(1, len(kinds)))]), max_size=3))
    asked = draw(st.lists(ranges_of(kinds), min_size=1, max_size=3))
    return kinds, files, boundaries, asked


WAYS = {"narrow": ReadLimits(), "wide": ReadLimits(page_rows=-1, scan_first_rows=7)}
"""Both ways to read give the same rows: tables of tests are all narrow."""


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


class Tree:
    """A table whose files lie in a folder, without a log."""

    def __init__(self, folder, schema, boundaries):
        self.schema = schema
        self.folder = Path(folder)
        self.storage = LocalStorage(self.folder / "root", durability="none")
        self.state = TableState()
        bounds = sorted({schema.codec.encode(bound) for bound in boundaries} - {b""})
        self.step(CreateTable(TABLE, schema, {}, tuple(bounds)))
        self.reader = Reader(self.storage, TABLE, lambda _file: True)

    def step(self, proposal):
        resolved = resolve(proposal, self.state)
        assert not isinstance(resolved, Rejected | Repeated), resolved
        self.state = apply(self.state, resolved, self.state.version + 1)

    def add(self, rows):
        """One file of these rows, pages of 100 and row groups of 1,000 at the most; filters are over whole keys in some
        files, and over their first fields in others.
        """
        schema = self.schema
        ordered = pa.Table.from_pylist(rows, schema=schema.arrow).sort_by([(n, "ascending") for n in schema.sort_names])
        settings = Settings(page_rows=100, row_group_rows=1000, bloom_fields=len(self.state.files) % 3)
        layout = Layout.of(schema, settings)
        run = write_run(ordered.combine_chunks().to_batches(), layout, self.folder, rows_estimate=len(rows))
        files: tuple[NewFile, ...] = send_run(self.storage, TABLE, run, job=f"job-{self.state.version:04d}")
        self.step(ProposeFiles(files))

    def scan(self, *ranges, columns=None, limit=None):
        encoded = [self.schema.codec.encode_range(each) for each in ranges]
        names = self.schema.names if columns is None else columns
        return self.reader.scan(plan(self.state, encoded), names, limit).read_all()

    def get(self, *key):
        encoded = self.schema.codec.encode_key(key)
        planned = plan(self.state, [EncodedRange(encoded, successor(encoded))])
        return self.reader.scan(planned, self.schema.names, None).read_all()


def rows_of(files, kinds):
    version = 0
    for keys in files:
        rows = []
        for key in keys:
            rows.append({**{f"k{i}": value for i, value in enumerate(key)}, "s": version, "v": f"v{version}"})
            version += 1
        yield rows


def key_of(row, kinds):
    return tuple(row[f"k{i}"] for i in range(len(kinds)))


@given(tables_of())
def test_scans_and_gets_equal_a_filtered_sorted_list(drawn):
    kinds, files, boundaries, asked = drawn
    schema = schema_of(kinds)
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(folder, schema, boundaries)
        rows = []
        for added in rows_of(files, kinds):
            tree.add(added)
            rows += added
        rows.sort(key=lambda row: (schema.codec.encode(key_of(row, kinds)), row["s"]))

        for tree.reader.limits in WAYS.values():
            check(tree, rows, kinds, asked)


def check(tree, rows, kinds, asked):
    schema = tree.schema
    wanted = [row for row in rows if any(holds(each, key_of(row, kinds)) for each in asked)]
    found = tree.scan(*asked)
    assert found.schema.equals(schema.arrow)
    assert [row["v"] for row in found.to_pylist()] == [row["v"] for row in wanted]
    assert [key_of(row, kinds) for row in found.to_pylist()] == [key_of(row, kinds) for row in wanted]

    limited = tree.scan(*asked, columns=["v"], limit=2).to_pylist()
    assert limited == [{"v": row["v"]} for row in wanted[:2]]

    for key in {key_of(row, kinds) for row in rows[:5]} | {tuple(VALUES[kind][0] for kind in kinds)}:
        got = tree.get(*key)
        assert got.schema.equals(schema.arrow)
        assert got.column("v").to_pylist() == [row["v"] for row in rows if key_of(row, kinds) == key]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """5,000 rows of two-field keys in three overlapping files of several row groups, in four partitions."""
    schema = Schema({"a": "string", "b": "int64"}, {"s": "int64"}, {"v": "double", "w": "string"})
    tree = Tree(tmp_path_factory.mktemp("many"), schema, [("k3",), ("k5", 40), ("k8",)])
    rows = [
        {"a": f"k{i * 7919 % 10}", "b": i * 31 % 97, "s": i, "v": i / 3, "w": None if i % 5 else f"w{i}"}
        for i in range(5000)
    ]
    tree.rows = sorted(rows, key=lambda row: (row["a"], row["b"], row["s"]))
    for part in range(3):
        tree.add(rows[part::3])
    return tree


@pytest.mark.parametrize(
    "key_range",
    [
        KeyRange(),
        KeyRange.prefix("k4"),
        KeyRange(("k2", 90), ("k3", 5)),
        KeyRange(("k2", 90), ("k3", 5), max_inclusive=True),
        KeyRange(None, ("k0", 1)),
        KeyRange(("k9", 96), None),
        KeyRange("k5", ("k5", 40)),
        KeyRange(("k5", 40), "k6"),
        KeyRange("k8", "k8"),
        KeyRange("nothing", "there"),
        KeyRange.starts_with("k"),
        KeyRange.prefix("k1", 17),
    ],
)
def test_ranges_over_several_files_row_groups_and_partitions(way, many, key_range):
    many.reader.limits = way
    wanted = [row for row in many.rows if holds(key_range, (row["a"], row["b"]))]
    if key_range == KeyRange.starts_with("k"):
        wanted = many.rows
    assert many.scan(key_range).to_pylist() == wanted


@pytest.mark.parametrize("slice_bytes", [1, 20_000, 60_000])
def test_slices_change_nothing(many, slice_bytes):
    many.reader.limits = ReadLimits(page_rows=-1, slice_bytes=slice_bytes, slice_file_bytes=1)
    assert many.scan(KeyRange()).to_pylist() == many.rows
    wanted = [row for row in many.rows if holds(KeyRange(("k2", 90), "k7"), (row["a"], row["b"]))]
    assert many.scan(KeyRange(("k2", 90), "k7")).to_pylist() == wanted


def test_more_files_than_one_merge_takes_go_through_levels(many):
    many.reader.limits = ReadLimits(page_rows=-1, fan_in=2)
    assert many.scan(KeyRange("k2", "k7"), columns=["w", "s"]).to_pylist() == [
        {"w": row["w"], "s": row["s"]} for row in many.rows if "k2" <= row["a"] < "k7"
    ]


def test_ranges_that_overlap_count_once(way, many):
    many.reader.limits = way
    assert many.scan(KeyRange("k2", "k5"), KeyRange("k4", "k6"), KeyRange.prefix("k4")).to_pylist() == [
        row for row in many.rows if "k2" <= row["a"] < "k6"
    ]


@pytest.mark.parametrize("limit", [0, 1, 2, 999, 5000, 5001])
def test_a_limit_takes_the_first_rows(way, many, limit):
    many.reader.limits = way
    assert many.scan(KeyRange(), limit=limit).to_pylist() == many.rows[:limit]


@pytest.mark.parametrize("columns", [["v"], ["w", "a"], ["s", "b", "a"], ["b"], ["v", "v"]])
def test_columns_come_as_asked_without_the_keys_that_only_ordered_them(way, many, columns):
    many.reader.limits = way
    found = many.scan(KeyRange.prefix("k4"), columns=columns)
    assert found.column_names == columns
    wanted = [row for row in many.rows if row["a"] == "k4"]
    for index, name in enumerate(columns):
        assert found.column(index).to_pylist() == [row[name] for row in wanted]


EXACT = pa.schema(
    [
        ("k", pa.int64()), ("bool", pa.bool_()), ("i8", pa.int8()), ("u64", pa.uint64()), ("half", pa.float16()),
        ("f32", pa.float32()), ("f64", pa.float64()), ("text", pa.string()), ("bytes", pa.binary()),
        ("fixed", pa.binary(3)), ("date", pa.date32()), ("sec", pa.timestamp("s")), ("nano", pa.timestamp("ns", "UTC")),
        ("t32", pa.time32("s")), ("t64", pa.time64("ns")), ("d128", pa.decimal128(20, 3)),
        ("d256", pa.decimal256(50, 2)), ("list", pa.list_(pa.string())),
        ("struct", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.binary()))])),
        ("map", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)  # fmt: skip


def exact_row(version):
    import decimal

    return {
        "k": version, "bool": True, "i8": -8, "u64": 2**64 - 1, "half": 0.5, "f32": 1.5, "f64": float("inf"),
        "text": "😀\0", "bytes": b"\xff\0", "fixed": b"abc", "date": DAYS[0], "sec": VALUES["timestamp[s]"][0],
        "nano": VALUES["timestamp[us, tz=UTC]"][3], "t32": dt.time(1, 2, 3), "t64": dt.time(1, 2, 3, 4),
        "d128": decimal.Decimal("-12345.678"), "d256": decimal.Decimal("9.25"), "list": ["a", None, ""],
        "struct": {"x": None, "y": [b"\0", None]}, "map": [("k", [1, None]), ("", None)],
    }  # fmt: skip


@pytest.mark.parametrize("files", [1, 2])
def test_every_type_comes_back_exactly(way, tmp_path, files):
    tree = Tree(tmp_path, Schema.from_arrow(EXACT, ["k"]), [])
    tree.reader.limits = way
    rows = [exact_row(1), exact_row(2), dict.fromkeys(EXACT.names) | {"k": 3}, exact_row(4)]
    for part in range(files):
        tree.add(rows[part::files])
    for found in (tree.scan(KeyRange()), pa.concat_tables([tree.get(n) for n in (1, 2, 3, 4)])):
        assert found.schema.equals(tree.schema.arrow)
        assert found.equals(pa.Table.from_pylist(rows, schema=tree.schema.arrow))


def test_names_that_a_query_language_would_take_apart(way, tmp_path):
    names = ["Key", 'a "quoted" name', "with.dot", "SELECT", "é x"]
    schema = Schema(
        {names[0]: "string", names[2]: "int32"}, {names[3]: "int64"}, {names[1]: "string", names[4]: "int64"}
    )
    tree = Tree(tmp_path, schema, [])
    tree.reader.limits = way
    rows = [dict(zip(schema.names, (f"k{i}", i, i, "v", i), strict=True)) for i in range(6)]
    tree.add(rows[::2])
    tree.add(rows[1::2])
    assert tree.scan(KeyRange("k1", "k4")).to_pylist() == rows[1:4]
    assert tree.get("k4", 4).to_pylist() == [rows[4]]
