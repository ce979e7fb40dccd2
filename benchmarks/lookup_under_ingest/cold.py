"""A new process's first lookup: imports, opening, planning and reading, the imports counted apart.

    python -m benchmarks.lookup_under_ingest.cold PEER FOLDER KEY TS

Imports are what the outermost import statements took that loaded something, wherever they stand: a library that
imports late has no advantage, and no disadvantage. The interpreter's own start is not counted.
"""

import builtins
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ImportClock:
    """Stands in for ``__import__`` and adds up what loading modules took."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.within = False
        self.load: Callable[..., Any] = builtins.__import__

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.within:
            return self.load(*arguments, **named)
        self.within, known, begin = True, len(sys.modules), time.perf_counter()
        try:
            return self.load(*arguments, **named)
        finally:
            self.within = False
            if len(sys.modules) != known:
                self.seconds += time.perf_counter() - begin


def main() -> int:
    name, folder, key, ts = sys.argv[1:]
    builtins.__import__ = clock = ImportClock()
    begin = time.perf_counter()
    from benchmarks.lookup_under_ingest.peers import peer_of

    peer = peer_of(name, Path(folder))
    peer.open()
    found = peer.get(key)
    taken = time.perf_counter() - begin
    builtins.__import__ = clock.load
    answer = found.column("ts").to_pylist()
    figures: dict[str, Any] = {"imports_ms": clock.seconds * 1e3, "lookup_ms": (taken - clock.seconds) * 1e3}
    print(json.dumps(figures if answer == [int(ts)] else {"error": f"WrongAnswer: ts {answer[:3]} for {key}"}))
    peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
