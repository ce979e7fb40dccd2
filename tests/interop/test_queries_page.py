"""docs/queries.md says what its code, its commands and its wrong statements print."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema
from lakebed.cli import main
from tests import pages

PAGE = "docs/queries.md"


def test_the_code_of_the_page_gives_what_stands_beside_it(tmp_path, capsys):
    names = {"lakebed": lakebed, "pa": pa, "pl": pl, "Schema": Schema, "KeyRange": KeyRange}
    first, *others = pages.blocks("docs/queries.md", "python")
    lake = str(tmp_path / "lake")
    assert sum(pages.run(block, names) for block in (first.replace(("memory://lake", lake)), *others)) >= 9
    found = names["flights"].lazy_polars().filter(pl.col("tailnum").str.starts_with("N14")).select("at", "delay")
    assert found.collect().rows() == [(2, 2), (3, 11)]
    assert names["flights"].to_duckdb().filter("delay > 5").fetchall() == [("N14228", 3, "EWR", 11)]

    refused = [block for block in pages.blocks(PAGE, "") if "\nUsageError: " in block.text]
    assert len(refused) == 2
    for block in refused:
        statements = block.text.splitlines()
        for code, said in zip(statements[::2], statements[1::2], strict=True):
            with pytest.raises(lakebed.Error) as caught:
                eval(code, names).read_all()
            assert f"{type(caught.value).__name__}: {caught.value}".startswith(said.removesuffix(" …"))

    (shown,) = [block for block in pages.blocks(PAGE, "") if block.text.startswith("$ ")]
    (words,) = pages.command_lines(shown)
    capsys.readouterr()
    assert main(["--instance", lake, *words]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == shown.text.splitlines()[1:]
