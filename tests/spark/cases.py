"""Rows to put in, and whether the same came out."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
import pytest

from lakebed import Instance, Schema, Table
from lakebed.model.settings import Strategy
from lakebed.upkeep.retention.run import collect_garbage

SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))
reads_streams = pytest.mark.skipif(SPARK < (4, 2), reason="Spark before 4.2 sets no limits on streams from Python")
writes_streams = pytest.mark.skipif(SPARK < (4, 1), reason="Spark before 4.1 writes no streams through Arrow")
pushes_filters = pytest.mark.skipif(SPARK < (4, 1), reason="Spark before 4.1 passes no filters to Python")

SCHEMA = Schema({"k": "string", "part": "int32"}, {"ts": "timestamp[us, tz=UTC]"}, {"v": "double", "note": "string"})
ALPHABET = ["", "a", "b", "é", "\uff5a", "\U0001f600", "\U0010ffff", "\x00", "z" * 50]


@pytest.fixture
def table(lake: Instance) -> Table:
    """An empty table of the schema above, for the conftest of a folder."""
    return lake.create_table("t", SCHEMA)


def two_runs(instance: Instance) -> Table:
    """A table of two partitions with the rows of :data:`PARTS`, each a run, and so an older version with fewer rows."""
    made = instance.create_table("t", SCHEMA, split_points=[("b",)])
    for part in PARTS:
        made.write(part)
    return made


def rows(seed: int, count: int = 1000) -> pa.Table:
    """Rows with repeated keys, ties, nulls in values, NaN, and text of every width."""
    rng = random.Random(seed)
    return pa.table(
        {
            "k": [rng.choice(ALPHABET) + str(rng.randrange(50)) for _ in range(count)],
            "part": [rng.randrange(-3, 3) for _ in range(count)],
            "ts": [rng.randrange(-(10**12), 10**12) for _ in range(count)],
            "v": [rng.choice([None, float("nan"), -0.0, rng.random()]) for _ in range(count)],
            "note": [rng.choice([None, "", f"{seed}-{i}"]) for i in range(count)],
        },
        schema=SCHEMA.arrow,
    )


PARTS = [rows(seed, 300) for seed in range(2)]


def write_parquet(folder, *tables: pa.Table, **options) -> list[str]:
    """One file for each table; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for version, table in enumerate(tables):
        paths.append(str(folder / f"part-{version:03d}.parquet"))
        pq.write_table(table, paths[-1], **options)
    return paths


def multiset(table: pa.Table) -> list[str]:
    """All rows in an order of their own; NaN equals itself, and 0.0 is not -0.0."""
    return sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


def assert_holds(table, *expected: pa.Table) -> None:
    """The table holds exactly these rows, in key order."""
    found = table.scan().read_all()
    keys = table.schema.codec.encode_columns(found).to_pylist()
    assert keys == sorted(keys)
    wanted = pa.concat_tables([part.select(found.schema.names) for part in expected]) if expected else found.slice(0, 0)
    assert multiset(found) == multiset(wanted)


def file_of(rows_: pa.Table, path, **options):
    """One Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows_, path, **options)
    return path


SMALL = {"split_rows": 800, "file_bytes": 8192, "row_group_rows": 1000, "history_s": 0}
FEW = {"compaction_batch_runs": 3, "compaction_run_bytes": 20_000, "file_bytes": 32_000}


def rewritten_rows(table: pa.Table, part: int) -> pa.Table:
    """Without the rows of a part below 0.3, and with a new note in the others of that part."""
    ours = pc.equal(table["part"], part)
    table = table.filter(pc.invert(pc.fill_null(pc.and_(ours, pc.less(table["v"], 0.3)), False)))
    notes = pc.binary_join_element_wise(table["k"], str(part), "")
    notes = pc.if_else(pc.equal(table["part"], part), notes, table["note"])
    return table.set_column(table.schema.get_field_index("note"), table.schema.field("note"), notes)


def anything_in_any_order(pipeline, instance, seed: int, take_in) -> None:
    """Writes and every kind of maintenance, drawn by the seed; ``take_in(table, *parts)`` adds rows in another way."""
    rng = random.Random(seed)
    table = instance.create_table("t", SCHEMA, settings=SMALL | FEW)
    held = []

    def taken_in():
        parts = [rows(rng.randrange(10**6), rng.randrange(1, 400)) for _ in range(2)]
        take_in(table, *parts)
        held.extend(parts)

    def written():
        held.append(rows(rng.randrange(10**6), rng.randrange(1, 400)))
        table.write(held[-1])

    def rewritten():
        part = rng.randrange(-3, 3)
        below, chosen = f"part = {part} AND v < 0.3", f"part = {part}"
        pipeline.rewrite(table, delete_where=below, set={"note": f"concat(k, '{part}')"}, where=chosen)
        held[:] = [rewritten_rows(one, part) for one in held]

    steps = [taken_in, written, written, rewritten]
    steps += [lambda: pipeline.compact(table, strategy=rng.choice(tuple(Strategy)))]
    steps += [lambda: pipeline.split(table), lambda: collect_garbage(table)]
    written()
    for _ in range(14):
        rng.choice(steps)()
    assert_holds(table, *held)
    pipeline.maintain(table)
    assert_holds(table, *held)
    table.set(compaction_strategy="full")
    pipeline.maintain(table)
    assert_holds(table, *held)
    found = table.partitions()
    assert set(found.column("runs").to_pylist()) == {1}
    assert max(found.column("rows").to_pylist()) <= SMALL["split_rows"] or found.num_rows > 1
