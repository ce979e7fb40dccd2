"""The examples run as they stand, in the session that there is, and come to what they say."""

import importlib.util
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

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
    for attempt in range(5):
        (tmp_path / str(attempt)).mkdir()
        try:
            assert example.run(spark, tmp_path / str(attempt)) == found
            break
        except StreamingQueryException as error:
            # On a busy machine Spark gives a stream's Python worker up after ten seconds.
            if attempt == 4 or "failed to connect back" not in str(error):
                raise
    assert said in capsys.readouterr().out
