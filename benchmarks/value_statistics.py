"""What statistics of value columns cost the writer, and what a predicate on such a column reads with them.

    python -m benchmarks.value_statistics [--rows 1000000] [--rounds 5] [--kinds hex integer narrow composite wide]

*Writing*: sorted rows of each kind of :mod:`benchmarks.row_kinds` as one data file, with statistics of value columns
(the default) and without (``statistics_off = *``), in turns: core-seconds, and the size of the file, of its footer and
of its page indexes. There are a fifth as many wide rows.

*Reading*: a table by a counter, with a time that follows it, a number that does not, and a text. One condition selects
0.5% of the rows by the time, one by the number. Pages are those that :meth:`Table.explain` reports, of all columns; the
table without statistics has the same rows. There is no peer: both sides are Lakebed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.results import record
from benchmarks.row_kinds import KINDS
from benchmarks.turns import Found, in_turns, measured, ratio
from lakebed.files.parquet.file_writer import write_run
from lakebed.files.parquet.footer import read_footer
from lakebed.files.parquet.layout import Layout
from lakebed.model.settings import Settings

SIDES = {"off": frozenset({"*"}), "on": frozenset[str]()}
READ_ROUNDS = 5


def write(kind: str, rows: pa.Table, off: frozenset[str]) -> Found:
    """Write the rows once."""
    schema = KINDS[kind].schema
    layout = replace(Layout.of(schema, Settings()), statistics_off=off, file_bytes=2**40)
    batches = rows.select(schema.names).to_batches(max_chunksize=8192)
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        begin, cores = time.perf_counter(), time.process_time()
        [file] = write_run(batches, layout, Path(folder), rows_estimate=rows.num_rows)
        found = measured(begin, 0.0) | {"core_seconds": time.process_time() - cores, "rows": rows.num_rows}
        content = file.path.read_bytes()
        footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
        footer = read_footer(content[-footer_bytes:], schema, file.path.name, len(content))
        return found | {"bytes": len(content), "footer": footer_bytes, "indexes": footer.indexes[1]}


def writing(kind: str, count: int, rounds: int) -> None:
    """Write a kind of rows by turns, and print a line."""
    rows = KINDS[kind].sorted_rows(count // 5 if kind == "wide" else count, 1)
    found = in_turns({name: lambda _, off=off: write(kind, rows, off) for name, off in SIDES.items()}, rounds)
    off, on = found["off"][0], found["on"][0]
    with_them, without = ([one["core_seconds"] for one in found[side]] for side in ("on", "off"))
    record(f"writer with statistics, {kind} rows", "CPU s", with_them, peer="without", theirs=without, aim=1 / 1.06)
    cores = ratio(found["on"], found["off"], "core_seconds")
    indexes = f"page indexes {off['indexes']:,} -> {on['indexes']:,} bytes"
    print(
        f"{kind:<10} writer CPU {cores}, file {on['bytes'] / off['bytes']:.4f} times, "
        f"footer {off['footer']:,} -> {on['footer']:,} bytes, {indexes}",
        flush=True,
    )


def table_of(lake: lakebed.Instance, name: str, count: int, **settings: str) -> lakebed.Table:
    """Make a table of readings in one file."""
    schema = lakebed.Schema({"number": "int64"}, values={"at": "timestamp[us]", "value": "double", "device": "string"})
    random = np.random.default_rng(1)
    numbers = np.arange(count)
    table = lake.create_table(name, schema, settings=settings)
    columns = {
        "number": numbers,
        "at": pa.array(numbers * 1_000_000 + random.integers(0, 5_000_000, count), pa.timestamp("us")),
        "value": random.normal(size=count),
        "device": pa.array([f"dev-{n:03}" for n in random.integers(0, 1000, count)]),
    }
    table.write(pa.table(columns))
    return table


def reading(count: int) -> None:
    """Read by two conditions, with statistics and without, and print a line for each."""
    low = f"to_timestamp_micros({count // 2 * 1_000_000})"
    high = f"to_timestamp_micros({(count // 2 + count // 200) * 1_000_000})"
    conditions = {
        "a time that follows the key": f"at >= {low} AND at < {high}",
        "a number that does not": "value > 2.58",
    }
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        lake = lakebed.create(folder)
        tables = {"on": table_of(lake, "on", count), "off": table_of(lake, "off", count, statistics_off="*")}
        for name, where in conditions.items():
            shown = []
            for side, table in tables.items():
                table.explain(where=where)
                seen = [table.explain(where=where) for _ in range(READ_ROUNDS)]
                one = min(seen, key=lambda each: each.seconds)
                shown.append(
                    f"{side}: {one.pages:,} pages read, {one.pages_out_by_bounds:,} of keys skipped, "
                    f"{one.size_bytes:,} bytes, {one.seconds * 1e3:.1f} ms"
                )
            print(f"{name}: {one.rows:,} rows; {'; '.join(shown)}", flush=True)


def main() -> None:
    """Write kinds of rows, and read a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="*", default=["hex", "integer", "narrow", "composite", "wide"], choices=KINDS)
    options = parser.parse_args()
    for kind in options.kinds:
        writing(kind, options.rows, options.rounds)
    reading(2 * options.rows)


if __name__ == "__main__":
    main()
