"""The README's example runs as it stands."""

import re
from pathlib import Path

import lakebed

README = Path(__file__).parents[2] / "README.md"


def test_the_first_example_of_the_readme_runs(tmp_path):
    """Only the place is another; the last two lines answer."""
    example = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(example.replace("/tmp/lake", str(tmp_path / "lake")), names)
    flights = names["flights"]
    assert isinstance(flights, lakebed.Table)
    assert flights.get("N14228").column("origin").to_pylist() == ["EWR"]
    assert flights.scan(lakebed.KeyRange("N1", "N2")).read_all().num_rows == 1
