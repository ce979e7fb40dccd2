"""One measure of one peer, in a process of the peer's environment; the figures are written to a file as JSON.

    python -m benchmarks.lookup_under_ingest.worker PEER MEASURE FOLDER OUT SIZES

Exceptions are figures too: ``error``, or ``none`` if the peer lacks the feature. Without a file, the process died.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from benchmarks.lookup_under_ingest.measures import MEASURES, Figures, said, writer
from benchmarks.lookup_under_ingest.peers import NotOffered, peer_of, versions_of
from benchmarks.lookup_under_ingest.rows import Sizes


def figures_of(name: str, measure: str, folder: Path, out: Path, sizes: dict[str, float]) -> Figures:
    """Return the figures of the measure, or the reason why there are none."""
    first = int(sizes.pop("first", 0))
    asked = Sizes(**sizes)
    try:
        peer = peer_of(name, folder)
        found = writer(peer, asked, first, out) if measure == "writer" else MEASURES[measure](peer, asked)
        peer.close()
        how = sys.modules[type(peer).__module__].__doc__ or ""
        return found | {"made_of": {"packages": versions_of(peer), "how": how.splitlines()[0]}}
    except NotOffered as error:
        return {"none": str(error)}
    except BaseException as error:  # noqa: BLE001 - a panic of a peer's native code is no Exception
        traceback.print_exc()
        return {"error": said(error)}


def main() -> int:
    name, measure, folder, out, sizes = sys.argv[1:]
    found = figures_of(name, measure, Path(folder), Path(out), json.loads(sizes))
    Path(out).write_text(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
