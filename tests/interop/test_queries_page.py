"""docs/queries.md says what its code prints."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import polars as pl
import pyarrow as pa

import lakebed
from lakebed import KeyRange, Schema

PAGE = Path(__file__).parents[2] / "docs" / "queries.md"


def test_the_code_of_the_page_gives_what_stands_beside_it():
    names = {"lakebed": lakebed, "pa": pa, "pl": pl, "Schema": Schema, "KeyRange": KeyRange}
    said = 0
    # The instances of memory:// live as long as the process, which other tests share.
    page = PAGE.read_text("utf-8").replace("memory://lake", f"memory://{uuid.uuid4().hex}")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block.split("\n# │")[0], names)
        for code, wanted in re.findall(r"^((?:lake|flights)\..*?)(?:\n#|  #) ([\[\d].*)$", block, re.MULTILINE):
            assert eval(code, names) == eval(wanted), code
            said += 1
    assert said == 9
    found = names["flights"].lazy_polars().filter(pl.col("tailnum").str.starts_with("N14")).select("at", "delay")
    assert found.collect().rows() == [(2, 2), (3, 11)]
    assert names["flights"].to_duckdb().filter("delay > 5").fetchall() == [("N14228", 3, "EWR", 11)]
