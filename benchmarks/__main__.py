"""Run all benchmarks, one after the other, each in a process of its own: ``python -m benchmarks [NAME …]``.

Sizes are the benchmarks' own defaults; run one by itself (``python -m benchmarks.lookups --help``) for other sizes.
Benchmarks that install other systems are run only if they are named.
"""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "commits", "hidden_rows", "logs", "rates", "state", "writes", "kernels", "lookups", "bulk_import", "ingest",
    "compaction", "amplification", "prefixes", "merging", "idle_service", "service_day", "http_get", "commit_via",
    "csv_write", "value_statistics", "pages", "gateway", "published", "published_scans",
    "published_visible", "views",
)  # fmt: skip
WITH_PEERS = ("lookup_under_ingest", "upserts", "appends")


def main() -> int:
    chosen = sys.argv[1:] or list(NAMES)
    unknown = [name for name in chosen if name not in NAMES + WITH_PEERS]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(NAMES + WITH_PEERS)}", file=sys.stderr)
        return 2
    failed = []
    for name in chosen:
        print(f"\n== {name} " + "=" * (70 - len(name)), flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
