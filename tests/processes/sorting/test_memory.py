"""Memory of a merge, in a child process of its own: it follows the limit, not the number or size of the inputs.

Inputs here are small and so is the limit; benchmarks/kernels.py does the same with 10, 40 and 200 inputs of 48 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.files.parquet.file_writer import write_run
from tests.tables.sorting.tables import bench_schema, small_layout

MIB = 1 << 20
LIMIT = 64 * MIB
ADDRESS_SPACE = 6 << 30
"""Threads' stacks, the engine's arenas and mapped libraries reserve about 3 GiB that they never touch."""

CHILD = """
import json, os, resource, sys
from pathlib import Path

os.environ["TOKIO_WORKER_THREADS"] = "1"
inputs, out, limit, space = sys.argv[1].split(os.pathsep), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_AS, (space, space))

from lakebed.files.sorting.merge import merge_runs
from tests.tables.sorting.tables import bench_schema, small_layout

def peak():
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024

layout = small_layout(bench_schema(), file_bytes=1 << 30, page_rows=1000, page_bytes=1 << 17, row_group_rows=20_000)
# What the libraries themselves take once they have done something.
merge_runs(list(map(Path, inputs[:1])), layout, out, key_range=None, memory_limit_bytes=limit)
before = peak()
files = merge_runs(list(map(Path, inputs)), layout, out, key_range=None, memory_limit_bytes=limit)
print(json.dumps({"rows": sum(f.rows for f in files), "bytes": peak() - before}))
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Ten sorted files of 100,000 rows, 5 MB each; more inputs than ten are the same files again."""
    import numpy as np
    import pyarrow as pa

    folder = tmp_path_factory.mktemp("inputs")
    random = np.random.default_rng(1)
    layout = small_layout(bench_schema(), file_bytes=1 << 30, page_rows=1000, page_bytes=1 << 17, row_group_rows=20_000)
    paths = []
    for _ in range(10):
        numbers = np.sort(random.integers(0, 2**62, 100_000))
        text = pa.array(np.char.mod("%016x", numbers))
        batch = pa.RecordBatch.from_arrays(
            [text, pa.array(numbers), pa.array(numbers % 1000), pa.array(np.char.mod("%032x", numbers[::-1]))],
            schema=bench_schema().arrow,
        )
        [file] = write_run([batch], layout, folder, rows_estimate=100_000)
        paths.append(file.path)
    return paths


def merge_in_child(inputs: list[Path], out: Path) -> dict[str, int]:
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", CHILD, os.pathsep.join(map(str, inputs)), str(out), str(LIMIT), str(ADDRESS_SPACE)],
        check=True,
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])},
    )
    result: dict[str, int] = json.loads(found.stdout)
    return result


@pytest.mark.parametrize(
    ("copies", "limits"),
    [pytest.param(1, 2, id="10 inputs"), pytest.param(4, 4, id="40 inputs", marks=pytest.mark.slow)],
)
def test_a_merge_keeps_to_its_memory_limit(inputs, tmp_path, copies, limits):
    """50 and 200 MB of rows in Parquet, two and a half times that decoded, through 64 MiB.

    Each input has a decoder of its own, so that many take more than few: 95 and 195 MB, give or take 20.
    """
    merged = merge_in_child(inputs * copies, tmp_path)

    assert merged["rows"] == 1_000_000 * copies
    assert merged["bytes"] < limits * LIMIT


@pytest.mark.slow
def test_two_hundred_inputs_take_no_more(inputs, tmp_path):
    """By levels, because so many do not fit 64 MiB at once."""
    merged = merge_in_child(inputs * 20, tmp_path)

    assert merged["rows"] == 20_000_000
    assert merged["bytes"] < 4 * LIMIT
