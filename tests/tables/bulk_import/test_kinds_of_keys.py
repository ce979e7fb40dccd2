"""Bulk imports of generated rows, of every kind of key and merge mode, against a sort in Python.

Tasks run in this thread; their functions are those of every executor.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Aggregate, First, KeepAll, Latest, Pipeline, Schema

KEYS = {
    "string": (["string"], lambda rng: (rng.choice(["", "a", "é", "\U0001f600", "\x00"]) + str(rng.randrange(30)),)),
    "prefix": (["string"], lambda rng: (f"https://example.org/{rng.randrange(60):07}",)),
    "int64": (["int64"], lambda rng: (rng.choice([-(2**63), 2**63 - 1, rng.randrange(-40, 40)]),)),
    "uint32": (["uint32"], lambda rng: (rng.randrange(2**32 - 60, 2**32),)),
    "binary": (["binary"], lambda rng: (bytes(rng.choices([0, 1, 255], k=rng.randrange(5))),)),
    "timestamp": (
        ["timestamp[us, tz=UTC]"],
        lambda rng: (datetime(1969, 12, 31, 23, tzinfo=UTC) + timedelta(minutes=rng.randrange(120)),),
    ),
    "date": (["date32"], lambda rng: (date(1969, 12, 1) + timedelta(days=rng.randrange(60)),)),
    "decimal": (["decimal128(9, 2)"], lambda rng: (Decimal(rng.randrange(-50, 50)) / 4,)),
    "bool": (["bool"], lambda rng: (rng.random() < 0.5,)),
    "composite": (["string", "int64"], lambda rng: (rng.choice("abc") * rng.randrange(3), rng.randrange(-5, 5))),
    "one key": (["string"], lambda _: ("hot",)),
}
"""Types of key fields, and what makes a key."""

MODES = {
    "all": KeepAll(),
    "latest": Latest(),
    "sort_key": Latest(by="sort_key"),
    "first": First(),
    "sum": Aggregate({"v": "sum"}),
}


def in_python(mode, rows):
    """What a table holds after an import of rows, each a key, a sort key and a value, in the order of the source."""
    if mode == KeepAll():
        return sorted((order_of(key), key, n, v) for key, n, v in rows)
    held = {}
    for key, n, v in rows:
        place = (key, n) if isinstance(mode, Aggregate) else key
        before = held.get(place)
        if before is not None and isinstance(mode, Aggregate):
            held[place] = (n, before[1] + v)
        elif before is None or mode == Latest() or (mode == Latest(by="sort_key") and n >= before[0]):
            held[place] = (n, v)
    found = ((place[0] if isinstance(mode, Aggregate) else place, *made) for place, made in held.items())
    return sorted((order_of(key), key, n, v) for key, n, v in found)


def order_of(key):
    """Text in the order of its UTF-8 bytes."""
    return tuple(field.encode() if isinstance(field, str) else field for field in key)


OTHERS = [mode for mode in MODES if mode != "all"]
CASES = [(kind, mode) for place, kind in enumerate(KEYS) for mode in ("all", OTHERS[place % len(OTHERS)])]
"""Each kind with all rows kept and with one of the other modes."""


@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_an_import_gives_the_rows_of_a_sort_in_python(tmp_path, kind, mode):
    types, make = KEYS[kind]
    rng = random.Random(f"{kind} {mode}")
    fields = [f"k{number}" for number in range(len(types))]
    schema = Schema(dict(zip(fields, types, strict=True)), {"n": "int64"}, {"v": "int64"})
    rows = [(make(rng), rng.randrange(20), number) for number in range(900)]
    lake = lakebed.create(tmp_path / "lake")
    settings = {"file_bytes": 4096, "row_group_rows": 1000}
    table = lake.create_table("t", schema, merge=MODES[mode], settings=settings)
    (tmp_path / "in").mkdir()
    for number in range(3):
        # A staging task, and so a map task, for each.
        columns = zip(*((*key, n, v) for key, n, v in rows[300 * number : 300 * (number + 1)]), strict=True)
        batch = pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema.arrow)
        with pa.ipc.new_file(tmp_path / "in" / f"{number}.arrow", batch.schema) as writer:
            writer.write_table(batch)
    with Pipeline(lake, launcher="this-thread") as pipeline:
        report = pipeline.bulk_import(table, tmp_path / "in")
    assert (report.rows, report.map_tasks) == (900, 3)
    found = [tuple(row.values()) for row in table.scan().read_all().to_pylist()]
    wanted = in_python(MODES[mode], rows)
    assert report.rows_written == len(found) == len(wanted)
    assert [row[: len(types)] for row in found] == [key for _, key, _, _ in wanted]
    # Rows with equal keys and sort keys may have any order where all are kept.
    assert sorted((order_of(row[: len(types)]), row[: len(types)], *row[len(types) :]) for row in found) == wanted
