"""Lookups while keys arrive in random order: Lakebed and its alternatives, on the same rows.

    python -m benchmarks.lookup_under_ingest [--peers lakebed delta-rs …] [--only lookups …] [--commits 100]

Peers run one after the other, each in an environment of its own (made on first use below --cache, from pinned
versions), each measure in a new process. A measure that has taken --seconds (the ingest four times that) stops and
reports its progress; one that fails shows its error. Nothing is compacted or optimized before the line "maintain".

Measures, in this order: ingest (with the curve of lookups in between), cold (a new process), lookups (warm), upsert,
delete (of a range of keys), maintain, tiny (commits of ten rows), writers (several processes at once).
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from benchmarks.lookup_under_ingest import report
from benchmarks.lookup_under_ingest.environments import default_cache, python_of
from benchmarks.lookup_under_ingest.peers import MODULES
from benchmarks.lookup_under_ingest.rows import Sizes, key_of, some_numbers, ts_of

MEASURES = ("ingest", "cold", "lookups", "upsert", "delete", "maintain", "tiny", "writers")
NEED_INGEST = ("cold", "lookups", "upsert", "delete", "maintain")
ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- begin: figures -->", "<!-- end: figures -->"

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """One peer on one folder: runs measures in its environment."""

    name: str
    python: str
    folder: Path
    sizes: Sizes

    def run(self, measure: str, folder: Path) -> Figures:
        """Return the figures of one measure, from a process of its own."""
        folder.mkdir(exist_ok=True)
        out = self.folder / f"{measure}.json"
        asked = ["worker", self.name, measure, str(folder), str(out), json.dumps(asdict(self.sizes))]
        ended = self.start(asked, 120 + 10 * self.sizes.seconds)
        if isinstance(ended, str):
            return {"error": ended}
        if not out.exists():
            return {"error": f"the process ended with {ended.returncode}: {last_line(ended.stderr)}"}
        found: Figures = json.loads(out.read_text())
        if "error" in found:
            print(ended.stderr, file=sys.stderr)
        return found

    def cold(self, folder: Path, total: int) -> Figures:
        """Return medians of the first lookups of some new processes."""
        found = []
        for number in some_numbers(total, self.sizes.processes):
            ended = self.start(["cold", self.name, str(folder), key_of(number), str(ts_of(number))], 120)
            if isinstance(ended, str) or ended.returncode:
                return {"error": ended if isinstance(ended, str) else last_line(ended.stderr)}
            figures = json.loads(ended.stdout.strip().splitlines()[-1])
            if "error" in figures:
                return dict(figures)
            found.append(figures)
        return {name: statistics.median(figures[name] for figures in found) for name in found[0]}

    def start(self, asked: list[str], seconds: float) -> subprocess.CompletedProcess[str] | str:
        """Run a module of this package in the peer's environment; return a text if it did not end in time."""
        module, *arguments = asked
        paths = [str(ROOT), str(ROOT / "src")] if self.name == "lakebed" else [str(ROOT)]
        try:
            return subprocess.run(
                [self.python, "-m", f"benchmarks.lookup_under_ingest.{module}", *arguments],
                capture_output=True,
                check=False,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return f"no end after {seconds:.0f} s"


def last_line(text: str) -> str:
    """Return the last line of output of a process that died."""
    return next((line.strip()[:160] for line in reversed(text.splitlines()) if line.strip()), "it said nothing")


def measured(bench: Bench, only: tuple[str, ...]) -> Figures:
    """Return all figures of one peer; a measure whose table could not be made has that error."""
    found: Figures = {}
    large, small = bench.folder / "large", bench.folder / "small"
    for measure in MEASURES:
        if measure not in only and not (measure == "ingest" and set(only) & set(NEED_INGEST)):
            continue
        print(f"{bench.name}: {measure}", file=sys.stderr, flush=True)
        if measure in NEED_INGEST and "error" in found["ingest"]:
            found[measure] = found["ingest"]
        elif measure == "cold":
            found[measure] = bench.cold(large, bench.sizes.commits * bench.sizes.rows)
        elif measure == "tiny":
            found[measure] = bench.run(measure, small)
            if "commits" in found[measure]:
                found["tiny_cold"] = bench.cold(small, found[measure]["commits"] * 10)
        else:
            found[measure] = bench.run(measure, bench.folder / "many" if measure == "writers" else large)
        if made_of := found[measure].pop("made_of", None):
            found["made_of"] = made_of
        if measure == "ingest" and "commits" in found[measure]:
            bench = replace(bench, sizes=replace(bench.sizes, commits=found[measure]["commits"]))
    return found


HELP = {
    "commits": "commits of random keys",
    "rows": "rows in each of them",
    "gets": "lookups of each kind, warm",
    "tiny": "commits of ten rows",
    "writers": "processes that write at once",
    "writer_commits": "commits of each of them",
    "processes": "new processes whose first lookup is timed",
    "seconds": "what a measure may take",
}


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lookup_under_ingest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for size in fields(Sizes):
        kind = float if size.name == "seconds" else int
        option = "--" + size.name.replace("_", "-")
        parser.add_argument(option, type=kind, default=size.default, help=f"{HELP[size.name]} (%(default)s)")
    parser.add_argument("--peers", nargs="+", choices=MODULES, default=list(MODULES), metavar="PEER")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), metavar="MEASURE")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="for environments (%(default)s)")
    parser.add_argument("--folder", type=Path, help="where to write tables (default: a temporary folder)")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    parser.add_argument("--docs", type=Path, help="a folder: its peers.md gets the table, and plots lie beside it")
    return parser.parse_args(arguments)


def published(results: Figures, docs: Path, cache: Path) -> None:
    """Write the figures, the plots and the table to the docs."""
    figures = docs / "lookup_under_ingest.json"
    figures.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    python = python_of("plot", cache)
    plot = [python, "-m", "benchmarks.lookup_under_ingest.plot", str(figures), str(figures.with_suffix(""))]
    subprocess.run(plot, check=True, cwd=ROOT)
    page = docs / "peers.md"
    before, rest = page.read_text("utf-8").split(BEGIN)
    text = report.markdown(results["peers"], results["sizes"], results["on"]["date"])
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", "utf-8")


def main(arguments: list[str] | None = None) -> int:
    args = parsed(arguments)
    sizes = Sizes(**{size.name: getattr(args, size.name) for size in fields(Sizes)})
    results: Figures = {
        "sizes": asdict(sizes),
        "on": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
        | {"date": dt.datetime.now(dt.UTC).date().isoformat()},
        "peers": {},
    }
    for name in args.peers:
        with tempfile.TemporaryDirectory(prefix="lakebed-bench-", dir=args.folder) as folder:
            try:
                python = python_of(name, args.cache)
            except subprocess.CalledProcessError as error:
                failed = {"error": f"not installed: pip ended with {error.returncode}"}
                results["peers"][name] = dict.fromkeys(args.only, failed)
                continue
            results["peers"][name] = measured(Bench(name, python, Path(folder), sizes), tuple(args.only))
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(report.table(results["peers"], results["sizes"]))
    if args.docs:
        published(results, args.docs, args.cache)
    return 0


if __name__ == "__main__":
    sys.exit(main())
