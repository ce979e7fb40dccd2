"""Compaction, splitting and collection on Spark: whatever is done in whatever order, the rows stay the same."""

import random

import pytest

from lakebed.settings import Strategy
from tests.spark.cases import SCHEMA, assert_holds, rows, write_parquet

SMALL = {"split_rows": 800, "file_bytes": 8192, "row_group_rows": 1000, "history_s": 0}
FEW = {"compaction_batch_runs": 3, "compaction_run_bytes": 20_000, "file_bytes": 32_000}


@pytest.fixture
def table(instance):
    return instance.create_table("t", SCHEMA, settings=SMALL)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_rows_come_back_after_anything_in_any_order(pipeline, table, tmp_path, seed):
    rng = random.Random(seed)
    held = []

    def imported():
        parts = [rows(rng.randrange(10**6), rng.randrange(400)) for _ in range(2)]
        pipeline.bulk_import(table, write_parquet(tmp_path / str(rng.random()), *parts))
        held.extend(parts)

    def written():
        held.append(rows(rng.randrange(10**6), rng.randrange(1, 400)))
        table.write(held[-1])

    steps = [imported, written, written]
    steps += [lambda: pipeline.compact(table, strategy=rng.choice(tuple(Strategy)))]
    steps += [lambda: pipeline.split(table), lambda: pipeline.collect_garbage(table)]
    table.set(**FEW)
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
    assert max(found.column("rows").to_pylist()) <= 800 or found.num_rows > 1
