"""A new process's first lookup: imports, opening, planning and reading, with imports timed separately.

    python -m benchmarks.lookup_under_ingest.cold PEER FOLDER KEY TS

The time of imports is that of the outermost import statements that loaded something, wherever they are, so it does not
matter whether a library imports late. The interpreter's own start is excluded.
"""

import builtins
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class ImportClock:
    """Sums the time of loading modules, by statements or by ``importlib``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.within = False

    def counting(self, load: Callable[..., Any]) -> Callable[..., Any]:
        """Return a timed replacement of a function that loads modules."""

        def counted(*arguments: Any, **named: Any) -> Any:
            if self.within:
                return load(*arguments, **named)
            self.within, known, begin = True, len(sys.modules), time.perf_counter()
            try:
                return load(*arguments, **named)
            finally:
                self.within = False
                if len(sys.modules) != known:
                    self.seconds += time.perf_counter() - begin

        return counted


def main() -> int:
    name, folder, key, ts = sys.argv[1:]
    clock = ImportClock()
    load_now = builtins.__import__
    builtins.__import__, importlib.import_module = clock.counting(load_now), clock.counting(importlib.import_module)
    begin = time.perf_counter()
    from benchmarks.lookup_under_ingest.peers import peer_of

    peer = peer_of(name, Path(folder))
    peer.open()
    found = peer.get(key)
    taken = time.perf_counter() - begin
    builtins.__import__ = load_now
    answer = found.column("ts").to_pylist()
    figures: dict[str, Any] = {"imports_ms": clock.seconds * 1e3, "lookup_ms": (taken - clock.seconds) * 1e3}
    print(json.dumps(figures if answer == [int(ts)] else {"error": f"WrongAnswer: ts {answer[:3]} for {key}"}))
    peer.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
