"""Run all benchmarks, one after the other, each in a process of its own: ``python -m benchmarks [NAME …]``.

Sizes are the benchmarks' own defaults. A name may have options, as one argument: ``"lookups --rows 1000000"``.
Benchmarks that install other systems are run only if they are named. What they find goes into a file of results, and
into the page that :mod:`benchmarks.figures` makes of all such files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import figures
from benchmarks.results import VARIABLE, Line

NAMES = (
    "commits", "hidden_rows", "logs", "rates", "state", "writes", "kernels", "lookups", "bulk_import", "ingest",
    "compaction", "amplification", "prefixes", "merging", "idle_service", "service_day", "http_get", "commit_via",
    "csv_write", "value_statistics", "compression", "pages", "gateway", "published", "published_scans",
    "published_visible", "second_key", "tpch", "views", "cold_reads", "database_api",
    "upserted_sql", "month", "scale",
)  # fmt: skip
WITH_PEERS = ("lookup_under_ingest", "upserts", "appends")


def main() -> int:
    chosen = [argument.split() for argument in sys.argv[1:]] or [[name] for name in NAMES]
    unknown = [name for name, *_ in chosen if name not in NAMES + WITH_PEERS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(NAMES + WITH_PEERS)}", file=sys.stderr)
        return 2
    failed = []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        lines = Path(folder) / "lines"
        lines.touch()
        environment = os.environ | {VARIABLE: str(lines)}
        for name, *options in chosen:
            print(f"\n== {name} " + "=" * (70 - len(name)), flush=True)
            command = [sys.executable, "-m", f"benchmarks.{name}", *options]
            if subprocess.run(command, check=False, env=environment).returncode:
                failed.append(name)
        found = [Line.parse(line) for line in lines.read_text().splitlines()]
    if found:
        print(f"\n{len(found)} lines in {figures.save(figures.this_run(found))}; the page is {figures.PAGE}")
        figures.main()
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
