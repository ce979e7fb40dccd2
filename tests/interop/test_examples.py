"""The examples of other libraries run as they stand, and come to what they say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "notebook.ipynb"
WARM = sum(n % 100 in (7, 42, 99) and n % 37 / 2 > 15 for n in range(10_000))


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("pandas_frames", 21.5, "the warmest reading of sensor 42: 21.5"),
        ("polars_frames", WARM, f"{WARM} readings above 15"),
        ("duckdb_relation", 99, "99 sensors"),
    ],
)
def test_an_example_runs(tmp_path, capsys, name, found, said):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.run(tmp_path) == found
    assert said in capsys.readouterr().out


def test_the_cells_of_the_notebook_run_one_after_another():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    names = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
    assert [
        one["minute"]
        for one in names["lake"].sql("SELECT minute FROM readings WHERE sensor = 42").read_all().to_pylist()
    ]
    assert all(not cell["outputs"] for cell in cells), "outputs are not kept: they would only grow old"
