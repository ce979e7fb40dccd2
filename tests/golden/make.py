"""Make the golden instance anew: ``python -m tests.golden.make [--to FOLDER]``.

Writes beside this module ``instance.tar.xz`` (the objects, each with its modification time), ``listing.txt`` (their
shapes) and ``answers.json`` (what the public calls answer), and prints the digest of all golden files. The digest
stands in docs/format.md, so that the golden files change only in a commit that changes the specification.

The objects are written by a process of its own (``--build``), in which the clock and all randomness are seeded: the
same code makes the same bytes. It needs neither Java nor a network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.listing import listing

FOLDER = Path(__file__).parent
ARCHIVE, LISTING, ANSWERS = "instance.tar.xz", "listing.txt", "answers.json"
CURRENT = Path("/tmp/lakebed-golden")
"""The instance is always written here: URLs of sources are stored in it, so it is the same on every machine."""


def make(to: Path, root: Path) -> None:
    """Make the three files in ``to``; the instance is written below ``root``, which is emptied."""
    with tempfile.TemporaryDirectory(prefix="lakebed-golden-") as scratch:
        build(root, to / ARCHIVE)
        extract(to / ARCHIVE, Path(scratch))
        (to / LISTING).write_text(listing(Path(scratch)))
        (to / ANSWERS).write_text(answers_of(Path(scratch)))


def build(root: Path, archive: Path) -> None:
    """Write the instance in a seeded process, and archive it."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    command = [sys.executable, "-m", "tests.golden.make", "--build", str(root), "--to", str(archive)]
    subprocess.run(command, check=True, cwd=FOLDER.parents[1], timeout=240)
    shutil.rmtree(root)


def answers_of(root: Path) -> str:
    """Return the answers about an instance as JSON text."""
    from tests.golden.answers import answers

    return _lines(answers(root)) + "\n"


def _lines(value: Any, indent: str = "") -> str:
    """Return JSON with each list or object of plain values on a line of its own."""
    inside = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list) or not any(isinstance(item, dict | list) for item in inside):
        return json.dumps(value, ensure_ascii=False)
    deeper = indent + " "
    if isinstance(value, list):
        lines, ends = [_lines(item, deeper) for item in value], "[]"
    else:
        lines = [f"{json.dumps(name, ensure_ascii=False)}: {_lines(item, deeper)}" for name, item in value.items()]
        ends = "{}"
    return f"{ends[0]}\n{deeper}" + f",\n{deeper}".join(lines) + f"\n{indent}{ends[1]}"


def extract(archive: Path, root: Path) -> Path:
    """Extract the objects below ``root``, with their modification times."""
    with tarfile.open(archive) as stored:
        stored.extractall(root, filter="data")
    return root


def digest() -> str:
    """Return the digest of all golden files: names and bytes, SHA-256, the first 32 hex digits."""
    files = [FOLDER / name for name in (ARCHIVE, LISTING, ANSWERS, "kit.json")]
    files += (FOLDER / "releases").iterdir()
    files += [path for path in (FOLDER / "store").rglob("*") if path.is_file() and not path.name.startswith(".")]
    lines = sorted(f"{path.relative_to(FOLDER).as_posix()} {_sha256(path)}" for path in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _build_here(root: Path, archive: Path) -> None:
    from tests.golden import seeded

    seeded.seed()
    from tests.golden.lake import built

    # The strongest compression takes as long as all writes; an archive that is only listed needs none.
    packed = {"preset": 9} if archive.suffix == ".xz" else {}
    with built(root), tarfile.open(archive, "w:xz" if packed else "w", **packed) as stored:
        seeded.settle()
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                info = tarfile.TarInfo(path.relative_to(root).as_posix())
                info.size, info.mtime = path.stat().st_size, int(path.stat().st_mtime)
                with path.open("rb") as data:
                    stored.addfile(info, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.build is not None:
        _build_here(given.build, given.to)
        return
    make(given.to, CURRENT)
    print(f"write this digest into docs/format.md: {digest()}")


if __name__ == "__main__":
    main()
