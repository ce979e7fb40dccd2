"""Any table, however it came about, answers every read like a plain sorted list of its rows does."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import KeyRange, Schema, clock
from lakebed.errors import Code
from lakebed.files.parquet.read_cache import READ_CACHE_BYTES
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import OpenJob, ProposeOutput, ProposeSplit
from lakebed.read.rows.request import ReadLimits
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.write.run import FileTarget, write_files
from tests.raising import raises

SCHEMA = Schema({"k": "string", "n": "int64"}, {"s": "int64"}, {"v": "string"})
SMALL = {"history_s": 0, "page_rows": 100, "row_group_rows": 1000}
TEXTS = ["", "a", "a\0", "ab", "b", "ü", "😀"]
NUMBERS = range(-3, 40)

KEYS = st.tuples(st.sampled_from(TEXTS), st.sampled_from([*NUMBERS, 2**63 - 1]))
BOUNDS = st.none() | KEYS | KEYS.map(lambda key: key[:1])


@st.composite
def ranges(draw):
    """Never upside down; often empty, or with nothing in it."""
    low, high = draw(BOUNDS), draw(BOUNDS)
    if low is not None and high is not None and SCHEMA.codec.encode(high) < SCHEMA.codec.encode(low):
        low, high = high, low
    return KeyRange(low, high, max_inclusive=draw(st.booleans()))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2**32), st.sampled_from([1, 5, 90, 2500])),
        st.tuples(st.just("split"), KEYS),
        st.tuples(st.just("remove"), ranges()),
        st.tuples(st.just("compact"), st.integers(0, 7)),
        st.tuples(st.just("collect")),
        st.tuples(st.just("restore"), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=7,
)


class Twin:
    """A table, and the list of rows that it has to be like."""

    def __init__(self, way="narrow"):
        self.table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", SCHEMA, settings=SMALL)
        self.table.reader.limits = WAYS[way]
        self.rows = []
        self.written = 0
        self.past = []

    def do(self, what, *how):
        self.past.append((self.table.version, list(self.rows)))
        getattr(self, what)(*how)
        self.rows.sort(key=lambda row: (SCHEMA.codec.encode(key_of(row)), row["s"]))

    def write(self, seed, count):
        chance = random.Random(seed)
        rows = [
            {"k": chance.choice(TEXTS), "n": chance.choice(NUMBERS), "s": self.written + i, "v": f"v{chance.random()}"}
            for i in range(count)
        ]
        self.written += count
        self.table.write(pa.Table.from_pylist(rows, SCHEMA.arrow))
        self.rows += rows

    def split(self, key):
        partitions, encoded = self.table.state().partitions, SCHEMA.codec.encode(key)
        if encoded not in partitions.boundaries:
            self.table.commit(ProposeSplit({partitions.ids[partitions.position(encoded)]: (encoded,)}))

    def remove(self, keys):
        if SCHEMA.codec.encode_range(keys).empty:
            # A removal of nothing is refused.
            return
        self.table.remove(keys)
        self.rows = [row for row in self.rows if not holds(keys, row)]

    def compact(self, position):
        """All files of a partition become one run."""
        state = self.table.state()
        position %= len(state.partitions)
        inputs = state.files_of(state.partitions.ids[position])
        if not inputs:
            return
        keys, job = state.partitions.range_at(position), clock.new_id()
        self.table.commit(OpenJob(Job(job, keys, tuple(file.id for file in inputs), "", 60, 0)))
        bounds = (SCHEMA.codec.encode_key(key_of(row)) for row in self.rows)
        merged = [row for row, bound in zip(self.rows, bounds, strict=True) if keys.contains(bound)]
        files = write_files(
            pa.Table.from_pylist(merged, SCHEMA.arrow).to_batches(),
            self.table.layout(),
            FileTarget(self.table.storage, self.table.id, job),
            memory_limit_bytes=2**28,
            cuts=state.partitions.boundaries,
        )
        self.table.commit(ProposeOutput(job, files))

    def collect(self):
        collect_garbage(self.table)

    def restore(self, back):
        """To a version before one of the last steps, unless its files are deleted."""
        version, rows = self.past[max(0, len(self.past) - 1 - back)]
        state = self.table.state()
        if version and state.retains(version):
            self.table.restore(version=version)
            self.rows = list(rows)
        elif version:
            with raises(Code.VERSION_NOT_RETAINED):
                self.table.restore(version=version)


def key_of(row):
    return row["k"], row["n"]


def holds(keys, row):
    key, (low, high) = key_of(row), (keys.min, keys.max)
    if low is not None and key[: len(low)] < low:
        return False
    return high is None or (key[: len(high)] <= high if keys.max_inclusive else key[: len(high)] < high)


PREDICATES = {
    "n % 3 = 0": lambda row: row["n"] % 3 == 0,
    "k = 'a' AND n > 5 OR v LIKE '%7'": lambda row: (row["k"] == "a" and row["n"] > 5) or row["v"].endswith("7"),
    "k IN ('b', 'ü') AND s < 50": lambda row: row["k"] in {"b", "ü"} and row["s"] < 50,
    "NULL": lambda row: False,
}

READS = st.fixed_dictionaries(
    {
        "asked": st.lists(ranges(), max_size=3),
        "where": st.none() | st.sampled_from(list(PREDICATES)),
        "limit": st.none() | st.sampled_from([0, 1, 7, 1000]),
        "reverse": st.booleans(),
        "columns": st.none() | st.sampled_from([("v",), ("n", "k"), ("s",), ("v", "v")]),
    }
)


WAYS = {
    "narrow": ReadLimits(),
    "wide": ReadLimits(page_rows=-1),
    "cut small": ReadLimits(
        page_rows=-1,
        slice_bytes=3000,
        slice_file_bytes=1,
        last_slice_bytes=100,
        scan_first_rows=7,
        scan_bytes=500,
        multi_get_rows=10,
        held_share=2**29,
        fan_in=2,
        prefix_skipped=0,
        prefix_pages=3,
    ),
}


@pytest.fixture(scope="module", params=WAYS)
def way(request):
    """Small tables are read in pages by nature; here also by the engine, in slices, small bunches and levels.

    Those last with nothing kept between two looks at a file.
    """
    if request.param == "cut small":
        lakebed.set_read_cache_bytes(0)
    yield request.param
    lakebed.set_read_cache_bytes(READ_CACHE_BYTES)


@settings(max_examples=settings.default.max_examples // 5)
@given(STEPS, st.lists(READS, min_size=1, max_size=4), st.lists(KEYS, max_size=40))
def test_a_table_reads_like_a_sorted_list(way, steps, reads, keys):
    twin = Twin(way)
    for step in steps:
        twin.do(*step)
    check_keys(twin, keys)
    for read in reads:
        check_scan(twin, **read)
        check_count(twin, read["asked"])
        check_prefixes(twin, read["asked"], read["limit"])


def check_keys(twin, keys):
    table, wanted = twin.table, set(keys)
    found = table.get_many(keys)
    assert found.schema.equals(SCHEMA.arrow)
    assert found.to_pylist() == [row for row in twin.rows if key_of(row) in wanted]
    assert table.get_many(
        pa.table({"n": [n for _, n in keys], "k": [k for k, _ in keys]}, TYPES), columns=["v"]
    ).equals(found.select(["v"]))
    for key in keys[:3]:
        assert table.get(*key).to_pylist() == [row for row in twin.rows if key_of(row) == key]


TYPES = pa.schema({"n": pa.int64(), "k": pa.large_string()})


def check_scan(twin, *, asked, where, limit, reverse, columns):
    wanted = [row for row in twin.rows if not asked or any(holds(keys, row) for keys in asked)]
    if where is not None:
        wanted = [row for row in wanted if PREDICATES[where](row)]
    wanted = wanted[::-1] if reverse else wanted
    found = twin.table.scan(*asked, where=where, limit=limit, reverse=reverse, columns=columns).read_all()
    names = SCHEMA.names if columns is None else columns
    assert found.column_names == list(names)
    for index, name in enumerate(names):
        assert found.column(index).to_pylist() == [row[name] for row in wanted[:limit]]


def check_count(twin, asked):
    wanted = sum(not asked or any(holds(keys, row) for keys in asked) for row in twin.rows)
    estimate, exact = twin.table.count(*asked), twin.table.count(*asked, exact=True)
    assert (exact.rows, exact.exact) == (wanted, True)
    assert estimate.rows == wanted or not estimate.exact
    some = twin.table.sample(17, seed=3)
    assert some.equals(twin.table.sample(17, seed=3))
    rows = {row["s"]: row for row in twin.rows}
    assert all(rows[row["s"]] == row for row in some.to_pylist())
    positions = [twin.rows.index(row) for row in some.to_pylist()]
    assert positions == sorted(set(positions))
    assert len(positions) == min(17, len(twin.rows))


def check_prefixes(twin, asked, limit):
    inside = [key_of(row) for row in twin.rows if not asked or any(holds(keys, row) for keys in asked)]
    for depth in (1, 2):
        wanted = list(dict.fromkeys(key[:depth] for key in inside))[:limit]
        found = twin.table.prefixes(depth, *asked, limit=limit)
        assert found.schema.equals(SCHEMA.arrow_of(["k", "n"][:depth]))
        assert [tuple(row.values()) for row in found.to_pylist()] == wanted
