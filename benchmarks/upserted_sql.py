"""SQL over a table with upserts that no compaction has merged, and UPDATE, beside DuckDB's own table: core-seconds.

    python -m benchmarks.upserted_sql [--rows 5000000] [--upserts 4] [--turns 3]

The table has one large file and upserts of 50,000 keys each, scattered over all of it. ``compacted`` is the same
statement over the large file alone. DuckDB's table has a primary key, and the same upserts by INSERT OR REPLACE. An
UPDATE is also compared with ``write(partial=True)`` of rows whose keys are known.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from statistics import median

import duckdb
import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.results import record
from benchmarks.turns import core_seconds
from lakebed import Latest, Schema

UPSERT_ROWS = 50_000
SCHEMA = Schema({"k": "int64"}, values={"a": "int64", "b": "string", "c": "double"})
STATEMENTS = {
    "a sum": "SELECT sum(a) AS a, count(*) AS n FROM t",
    "rows by a value": "SELECT k, a FROM t WHERE c < 0.01 ORDER BY k",
    "one key in a hundred": "SELECT k, a FROM t WHERE k % 100 = 0 ORDER BY k",
    "groups": "SELECT a % 1000 AS g, max(b) AS b FROM t GROUP BY g ORDER BY g",
}


def rows_of(keys: np.ndarray, seed: int) -> pa.Table:
    """Return a row for each key."""
    chance = np.random.default_rng(seed)
    texts = [f"{key * 2654435761 % 2**32:032x}" for key in keys.tolist()]
    numbers = chance.integers(0, 1 << 40, len(keys))
    return pa.table({"k": keys, "a": numbers, "b": texts, "c": chance.random(len(keys))})


def cpu_of(call: Callable[[], object]) -> float:
    """Return the core-seconds of a call."""
    begin = core_seconds()
    call()
    return core_seconds() - begin


def shown(what: str, ours: list[float], others: dict[str, list[float]]) -> None:
    """Print a line, and record it against the last of the others."""
    cells = "".join(f"{median(found):>14.3f}" for found in (ours, *others.values()))
    print(f"{what:26}{cells}", flush=True)
    *_, peer = others
    record(what, "CPU s", ours, peer=peer, theirs=others[peer])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upserts", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    chance = np.random.default_rng(7)
    upserts = [chance.choice(arguments.rows, UPSERT_ROWS, replace=False) for _ in range(arguments.upserts)]
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        plain, upserted = (lakebed.create(f"{folder}/{name}") for name in ("plain", "upserted"))
        theirs = duckdb.connect(f"{folder}/duck.db")
        theirs.execute("CREATE TABLE t (k BIGINT PRIMARY KEY, a BIGINT, b VARCHAR, c DOUBLE)")
        first = rows_of(np.arange(arguments.rows), 0)
        for lake in (plain, upserted):
            lake.create_table("t", SCHEMA, merge=Latest()).write(first)
        theirs.execute("INSERT INTO t SELECT * FROM first")
        for seed, keys in enumerate(upserts, 1):
            changed = rows_of(keys, seed)
            upserted.table("t").write(changed)
            theirs.execute("INSERT OR REPLACE INTO t SELECT * FROM changed")
        print(f"{arguments.rows:,} rows, {arguments.upserts} upserts of {UPSERT_ROWS:,}; medians of core-seconds\n")
        print(f"{'':26}{'upserted':>14}{'compacted':>14}{'DuckDB':>14}")
        for what, statement in STATEMENTS.items():
            assert found_by(upserted, statement).to_pylist() == found_by(theirs, statement).to_pylist(), what
            sides = {"upserted": upserted, "compacted": plain, "DuckDB": theirs}
            found: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(arguments.turns):
                for name, side in sides.items():
                    found[name].append(cpu_of(partial(found_by, side, statement)))
            shown(what, found.pop("upserted"), found)
        updates(plain, theirs, arguments.rows, arguments.turns)


def found_by(side: lakebed.Instance | duckdb.DuckDBPyConnection, statement: str) -> pa.Table:
    """Return the rows of a statement."""
    if isinstance(side, lakebed.Instance):
        return side.sql(statement).read_all()
    return side.sql(statement).to_arrow_table()


def updates(lake: lakebed.Instance, theirs: duckdb.DuckDBPyConnection, rows: int, turns: int) -> None:
    """Print the core-seconds of UPDATE of 50,000 rows by SQL, of a partial write of their keys, and of DuckDB."""
    print(f"\n{'UPDATE of 50,000 rows':26}{'SQL':>14}{'partial write':>14}{'DuckDB':>14}")
    step, low = rows // UPSERT_ROWS, rows // 5
    conditions = {
        "by a range of keys": (f"k >= {low} AND k < {low + UPSERT_ROWS}", np.arange(low, low + UPSERT_ROWS)),
        "by an expression": (f"k % {step} = 0", np.arange(0, rows, step)),
    }
    for what, (where, keys) in conditions.items():
        found: dict[str, list[float]] = {"SQL": [], "partial write": [], "DuckDB": []}
        for turn in range(turns):
            statement = f"UPDATE t SET a = {turn} WHERE {where}"
            some = pa.table({"k": keys, "a": np.full(len(keys), turn)})
            found["SQL"].append(cpu_of(partial(lake.execute, statement)))
            found["partial write"].append(cpu_of(partial(lake.table("t").write, some, partial=True)))
            found["DuckDB"].append(cpu_of(partial(theirs.execute, statement)))
        shown(f"UPDATE {what}", found.pop("SQL"), found)


if __name__ == "__main__":
    main()
