"""Go back to the release before: ``python -m tests.golden.downgrade [WHEEL | COMMIT]``, by default the last commit.

The code of this checkout makes an instance in which no new feature is on. The Lakebed of the wheel, in an environment
of its own, reads, verifies, writes to and collects it; then this code reads that. A wheel is built of a commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pyarrow as pa

import lakebed
from lakebed import Aggregate, InProcess, Latest, Pipeline, Schema, SetFilter

REPOSITORY = Path(__file__).parents[2]

OLD = """
import json, sys
import lakebed
from lakebed.upkeep.retention.run import gc
lake = lakebed.open(sys.argv[1])
for name in lake.tables():
    table = lake.table(name)
    assert table.verify(files=True, deep=True).sound, name
    rows = sorted(map(str, table.to_arrow().to_pylist()))
    table.write(table.to_arrow().slice(0, 1))
    print(json.dumps([name, rows]))
assert gc(lake).errors == ()
print(json.dumps(["of", lakebed.__file__]))
"""
"""What the older Lakebed does; its public names are those of every 1.x."""


def make(root: Path) -> dict[str, list[str]]:
    """Make an instance with the code of this checkout; returns its rows."""
    lake = lakebed.create(str(root))
    schema = Schema({"k": "string"}, {"at": "int64"}, {"v": "int64"})
    lake.create_table("all", schema, split_points=["m"])
    lake.create_table("newest", schema, merge=Latest(), settings={"history_s": 0})
    lake.create_table("totals", schema, merge=Aggregate({"v": "sum"}))
    with Pipeline(lake, launcher=InProcess(workers=1)) as pipeline:
        for name in lake.tables():
            table = lake.table(name)
            for turn in range(4):
                table.write(pa.table({"k": list("abyz"), "at": [turn % 2] * 4, "v": range(turn, turn + 4)}))
            pipeline.compact(table, strategy="full")
            table.tag("kept")
            table.log.wait_for_checkpoint()
    lake.table("all").alter(SetFilter("v > 0"))
    return rows_of(root)


def rows_of(root: Path) -> dict[str, list[str]]:
    """Return the rows of every table as text."""
    lake = lakebed.open(str(root))
    return {name: sorted(map(str, lake.table(name).to_arrow().to_pylist())) for name in lake.tables()}


def wheel_of(commit: str, folder: Path) -> Path:
    """Build the wheel of a commit."""
    source = folder / "source"
    source.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    build = ["pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run([sys.executable, "-m", *build], check=True)
    return next(folder.glob("*.whl"))


def main() -> None:
    given = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    with tempfile.TemporaryDirectory(prefix="lakebed-downgrade-") as text:
        folder = Path(text)
        wheel = Path(given).resolve() if given.endswith(".whl") else wheel_of(given, folder)
        venv.create(folder / "old", with_pip=False)
        python = folder / "old/bin/python"
        target = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        install = ["pip", "install", "--quiet", "--no-deps", "--target", target, str(wheel)]
        subprocess.run([sys.executable, "-m", *install], check=True)
        # Its dependencies are those of this environment; its own folder comes first.
        there = [path for path in sys.path if path.endswith("site-packages")]
        (Path(target) / "dependencies.pth").write_text("\n".join(there) + "\n")
        before = make(folder / "lake")
        found = subprocess.run(
            [python, "-c", OLD, str(folder / "lake")], check=True, capture_output=True, text=True, cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )  # fmt: skip
        lines = dict(map(json.loads, found.stdout.splitlines()))
        assert lines.pop("of").startswith(str(folder)), "the older Lakebed was not the one of the wheel"
        assert lines == before, "the older Lakebed gave other rows"
        after = rows_of(folder / "lake")
        assert {name: set(rows) for name, rows in after.items() if name != "totals"} == {
            name: set(rows) for name, rows in before.items() if name != "totals"
        }
        assert all(lakebed.open(str(folder / "lake")).table(name).verify(files=True, deep=True).sound for name in after)
        print(f"{wheel.name} read, verified, wrote to and collected {len(after)} tables of this checkout")


if __name__ == "__main__":
    main()
