"""The examples run as they stand, in the session that there is, and come to what they say."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("batch", 100, "100,000 rows, as many as went in: 100,000"),
        ("streaming", 360, "after morning 1: 180 large orders"),
        ("sql", 48, "/3"),
    ],
)
def test_an_example_runs(spark, tmp_path, capsys, *, name, found, said):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.run(spark, tmp_path) == found
    assert said in capsys.readouterr().out
