"""Runs the tests that failed in the two halves of ``make test`` once more, alone: test_again.py CACHE CACHE.

Each argument is the folder in which a half left pytest's cache. A test that fails beside 14,000 others and passes alone
does not fail the change, but is named at the end: it is a race, of the test or of Lakebed, and gets mended. More than a
few are no coincidence, and a half that did not run to its end has nothing to say: both fail.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lakebed.model.documents import load

FAILED_MAX = 3
PASSED, FAILED = 0, 1
"""Exit codes of pytest after a run to the end."""


def main(caches: list[Path]) -> int:
    """Return the exit code of ``make test``."""
    failed: list[str] = []
    for cache in caches:
        values = cache / "v"
        ended = values / "lakebed" / "exit_code"
        code = load(ended.read_bytes()) if ended.exists() else None
        if code not in {PASSED, FAILED}:
            print(f"no second run: the tests of {cache.name} did not run to their end", file=sys.stderr)
            return 1
        if code == FAILED:
            failed += load((values / "cache" / "lastfailed").read_bytes())
    if not 0 < len(failed) <= FAILED_MAX:
        print(f"no second run: {len(failed)} tests failed, and at most {FAILED_MAX} are run again", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *failed]
    if subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode != PASSED:  # noqa: S603
        return 1
    print("failed beside the others and passed alone, so each has a race to be mended:", *failed, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main([Path(one) for one in sys.argv[1:]]))
