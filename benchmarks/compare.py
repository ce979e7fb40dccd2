"""Another checkout of Lakebed against this one, in turns in the same minutes.

    git worktree add /tmp/old SOME_COMMIT
    python -m benchmarks.compare /tmp/old [--only get scan …] [--turns 9] [--rows 1000000]

Each measure has a process for each side, which imports Lakebed from that side's ``src`` and makes tables of its own, so
stored formats may differ. After a warm-up turn, the sides take turns: old, new, new, old, and so on, one at a time. A
turn of both is a pair. A ratio is the median over the pairs of old divided by new, with its quartiles: above 1 the new
code is faster. Wall and CPU times are medians, in milliseconds for one unit of work.

* ``get``, ``get_many`` (10,000 keys), ``scan`` (all rows): a table of one run on local disk, warm
* ``where``: a scan of all rows with a predicate on a value; ``sql``: a statement that groups all rows; ``sql_key``: the
  rows of one key, by a statement
* ``write``: 200,000 unsorted rows, in one call; ``csv``: as many of a file of CSV whose types are detected
* ``commit``: writes of ten rows, one after another
* ``compaction``: ten overlapping files become one; the tasks of the pipeline run in the process, without Spark
* ``import``: Parquet files through Spark, CPU of the whole process tree; left out without ``JAVA_HOME``

Only calls that both checkouts have are used. Adapt :class:`Side` if a public name changes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from benchmarks.bulk_import import make_rows
from benchmarks.session_here import SessionHere
from benchmarks.turns import core_seconds
from benchmarks.writes import batches

ROOT = Path(__file__).parents[1]
GETS, KEYS, STATEMENTS, WRITE_ROWS, COMMITS, FILES = 1_000, 10_000, 20, 200_000, 30, 10


class Side:
    """One checkout's Lakebed in this process, and its measures: each is a function that does the work of one turn."""

    def __init__(self, folder: Path, rows: int) -> None:
        import lakebed

        self._lakebed = lakebed
        self._folder = folder
        self._rows = rows
        self._lake = lakebed.create(str(folder / "lake"))
        self._names = (f"t{number}" for number in count())

    def measure(self, name: str) -> Callable[[], tuple[float, float]]:
        """Return a function that runs a turn of a measure and returns wall and CPU seconds for one unit."""
        return getattr(self, f"_{name}")()  # type: ignore[no-any-return]

    def _table(self, data: Any = None) -> Any:
        schema = self._lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
        table = self._lake.create_table(next(self._names), schema)
        if data is not None:
            table.write(data)
        return table

    def _read(self, keys: int) -> tuple[Any, list[str]]:
        """Return a table of one run, and random keys of it."""
        rows = pa.Table.from_batches(batches(self._rows))
        chosen = np.random.default_rng(7).choice(self._rows, min(keys, self._rows), replace=False)
        return self._table(rows), rows.column("key").take(pa.array(chosen)).to_pylist()

    def _get(self) -> Callable[[], tuple[float, float]]:
        table, keys = self._read(GETS)
        return lambda: timed(lambda: check(sum(table.get(key).num_rows for key in keys), len(keys)), len(keys))

    def _get_many(self) -> Callable[[], tuple[float, float]]:
        table, keys = self._read(KEYS)
        return lambda: timed(lambda: check(table.get_many(keys).num_rows, len(keys)))

    def _scan(self) -> Callable[[], tuple[float, float]]:
        table, _ = self._read(1)
        return lambda: timed(lambda: check(sum(batch.num_rows for batch in table.scan()), self._rows))

    def _where(self) -> Callable[[], tuple[float, float]]:
        table, _ = self._read(1)
        return lambda: timed(lambda: sum(batch.num_rows for batch in table.scan(where='"count" > 100')))

    def _sql(self) -> Callable[[], tuple[float, float]]:
        table, _ = self._read(1)
        text = f'SELECT "count", count(*), max(value) FROM {table.name} WHERE ts > 5 GROUP BY "count"'
        return lambda: timed(lambda: self._lake.sql(text).read_all())

    def _sql_key(self) -> Callable[[], tuple[float, float]]:
        table, keys = self._read(STATEMENTS)
        texts = [f"SELECT * FROM {table.name} WHERE key = '{key}'" for key in keys]
        return lambda: timed(
            lambda: check(sum(self._lake.sql(text).read_all().num_rows for text in texts), len(texts)), len(texts)
        )

    def _write(self) -> Callable[[], tuple[float, float]]:
        rows = pa.Table.from_batches(batches(WRITE_ROWS))

        def turn() -> tuple[float, float]:
            table = self._table()
            return timed(lambda: table.write(rows))

        return turn

    def _csv(self) -> Callable[[], tuple[float, float]]:
        file = self._folder / "rows.csv"
        pacsv.write_csv(pa.Table.from_batches(batches(WRITE_ROWS)), file)

        def turn() -> tuple[float, float]:
            table = self._table()
            return timed(lambda: table.write(str(file)))

        return turn

    def _commit(self) -> Callable[[], tuple[float, float]]:
        rows = pa.Table.from_batches(batches(10 * COMMITS))

        def turn() -> tuple[float, float]:
            table = self._table(rows.slice(0, 10))
            return timed(lambda: [table.write(rows.slice(10 * n, 10)) for n in range(COMMITS)], COMMITS)

        return turn

    def _compaction(self) -> Callable[[], tuple[float, float]]:
        from lakebed import Pipeline

        rows = pa.Table.from_batches(batches(self._rows))
        each = self._rows // FILES
        pipeline = Pipeline(self._lake, SessionHere())

        def turn() -> tuple[float, float]:
            table = self._table()
            for version in range(FILES):
                table.write(rows.slice(version * each, each))
            return timed(lambda: check(pipeline.compact(table, strategy="full").rows, FILES * each))

        return turn

    def _import(self) -> Callable[[], tuple[float, float]]:
        from lakebed import Pipeline

        make_rows(self._folder / "rows", 4, self._rows // 4)
        pipeline = Pipeline(self._lake)

        def turn() -> tuple[float, float]:
            table = self._table()
            begin, begin_cpu = time.perf_counter(), core_seconds()
            check(pipeline.bulk_import(table, str(self._folder / "rows")).rows, self._rows // 4 * 4)
            return time.perf_counter() - begin, core_seconds() - begin_cpu

        return turn


MEASURES = ("get", "get_many", "scan", "where", "sql", "sql_key", "write", "csv", "commit", "compaction", "import")


def timed(work: Callable[[], object], units: int = 1) -> tuple[float, float]:
    """Return wall and CPU seconds of the process, for each of ``units`` units."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - begin) / units, (time.process_time() - begin_cpu) / units


def check(found: int, expected: int) -> None:
    if found != expected:
        raise AssertionError(f"{found} rows, not {expected}")


# -- one process a side -----------------------------------------------------------------------------------------


def child(name: str, source: Path, folder: Path, rows: int) -> None:
    """Take a turn for each line read from stdin."""
    import lakebed

    if not Path(lakebed.__file__).is_relative_to(source):
        raise SystemExit(f"imported Lakebed from {lakebed.__file__}, which is not below {source}")
    answers = os.fdopen(os.dup(1), "w")
    # Output of Spark on stdout is not a result.
    os.dup2(2, 1)
    turn = Side(folder, rows).measure(name)
    for _ in sys.stdin:
        print(json.dumps(turn()), file=answers, flush=True)


@contextmanager
def started(name: str, checkout: Path, rows: int) -> Iterator[Callable[[], tuple[float, float]]]:
    """Start a process of one side; return a function that makes it take a turn."""
    source = checkout / "src"
    paths = os.pathsep.join([str(source), str(ROOT)])
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        words = ["--child", name, "--source", str(source), "--folder", folder, "--rows", str(rows)]
        command = [sys.executable, "-m", "benchmarks.compare", str(checkout), *words]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            asked, answers = process.stdin, process.stdout
            yield lambda: _turn(asked, answers)
            asked.close()


def _turn(asked: IO[str], answers: IO[str]) -> tuple[float, float]:
    asked.write("\n")
    asked.flush()
    line = answers.readline()
    if not line:
        raise SystemExit("a side ended before its turn did; see above")
    wall, cpu = json.loads(line)
    return wall, cpu


# -- the table --------------------------------------------------------------------------------------------------


def compared(name: str, old: Path, rows: int, turns: int) -> str:
    """Return the line of one measure."""
    with ExitStack() as stack:
        sides = [stack.enter_context(started(name, checkout, rows)) for checkout in (old, ROOT)]
        for side in sides:
            side()
        taken: list[list[tuple[float, float]]] = [[], []]
        for turn in range(turns):
            for index in (0, 1) if turn % 2 == 0 else (1, 0):
                taken[index].append(sides[index]())
    cells = [f"{name:<12}"]
    for kind in (0, 1):
        before, after = ([times[kind] * 1e3 for times in side] for side in taken)
        ratios = [a / b if b else float("nan") for a, b in zip(before, after, strict=True)]
        low, _, high = quantiles(ratios, n=4)
        cells.append(f"{median(before):10.3f}{median(after):10.3f}{median(ratios):8.2f} ({low:.2f}-{high:.2f})")
    return "   ".join(cells)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, metavar="OLD_CHECKOUT", help="a folder with the other src/lakebed")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=MEASURES, metavar="MEASURE")
    parser.add_argument("--turns", type=int, default=9, help="pairs of turns that count, at least two")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the tables that are read, merged and imported")
    parser.add_argument("--child", choices=MEASURES, help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.child:
        child(args.child, args.source, args.folder, args.rows)
        return 0
    old = args.old.resolve()
    if not (old / "src" / "lakebed").is_dir():
        parser.error(f"{old} is no checkout of Lakebed: it has no src/lakebed")
    if args.turns < 2:
        parser.error("--turns: a spread needs at least two")
    if args.rows < KEYS:
        parser.error(f"--rows: at least {KEYS:,}")
    print(f"old: {old}\nnew: {ROOT}\n{args.rows:,} rows, {args.turns} pairs of turns; milliseconds; ratio old / new")
    print(f"{'':<12}   {'wall: old':>10}{'new':>10}{'ratio':>8}{'':14}   {'CPU: old':>10}{'new':>10}{'ratio':>8}")
    for name in args.only:
        if name == "import" and not os.environ.get("JAVA_HOME"):
            print(f"{name:<12}   left out: JAVA_HOME is not set")
            continue
        print(compared(name, old, args.rows, args.turns), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
