"""The command lines of the guides run, in their order, where they need no more than a local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema
from lakebed.cli import main
from tests import pages

ELSEWHERE = ("import", "serve", "table rewrite", "erase-report", "top", "jobs retry")
"""Commands that start Spark, do not end by themselves, or need a job that failed often."""

A_HOOK = "01a2064e-7d1f-7b2a-9a54-0f4d0bd9c1ff"
A_JOB = "3addeb4a328c"

RUN = {
    "README.md": 2,
    "docs/bulk-load.md": 3,
    "docs/hooks.md": 4,
    "docs/import.md": 4,
    "docs/jobs.md": 6,
    "docs/migrate.md": 3,
    "docs/operations.md": 3,
    "docs/security.md": 3,
    "docs/service.md": 2,
    "docs/settings.md": 5,
}
"""How many lines of a page run here."""


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the files that the guides name, and no instance."""
    monkeypatch.chdir(tmp_path)
    for name in ("LAKEBED_INSTANCE", "LAKEBED_SERVICE", "LAKEBED_COMMIT_VIA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("users.csv").write_text("id,name,since\n1,Ann,2026-01-31\n2,Bob,2026-02-01\n", "utf-8")
    Path("airports.csv").write_text("faa,name\nEWR,Newark Liberty\n", "utf-8")
    Path("secret.txt").write_text("0123456789abcdef0123456789abcdef", "utf-8")
    pq.write_table(pa.table({"customer": ["c-1"], "day": [1], "paid": [2.5]}), "part-0.parquet")
    pq.write_table(pa.table({"id": [1, 2], "paid": [2.5, 0.5]}), "orders.parquet")
    pq.write_table(pa.table({"id": [3], "paid": [1.0]}), "more.parquet")
    Path("sales/day=20260131").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "sold": [5]}), "sales/day=20260131/part-0.parquet")
    return tmp_path


def make_lake() -> None:
    """The instance ./lake with the tables that the guides name."""
    lake = lakebed.create("lake")
    flights = lake.create_table("flights", Schema({"tailnum": "string"}, {"at": "int64"}, {"origin": "string"}))
    flights.write(pa.table({"tailnum": ["N14228"], "at": [1], "origin": ["EWR"]}))
    lake.create_table(
        "bookings", Schema({"id": "int64"}, values={"city": "string", "margin": "double", "ssn": "string"})
    )


def lines_here(page: str) -> Iterator[tuple[int, list[str]]]:
    """The command lines of a page that can run here, with the number of the first line of their block."""
    for block in pages.blocks(page):
        for words in pages.command_lines(block):
            command = pages.parse(words)
            stores = [word for word in words if "://" in word and command != "hook create"]
            foreign = command == "migrate" and "hive" not in words
            if command not in ELSEWHERE and not stores and not foreign and A_JOB not in words:
                yield block.line, words


@pytest.mark.parametrize(("page", "count"), RUN.items())
def test_the_command_lines_of_a_guide_run(
    page: str, count: int, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if page != "docs/import.md":  # which makes the instance
        make_lake()
    found = list(lines_here(page))
    hook = ""
    for line, words in found:
        here = {
            "/tmp/lake-first": "lake",
            "/tmp/lake": "lake",
            "/backup/lake": "copy",
            "/tmp/restored": "restored",
            A_HOOK: hook,
        }
        code = main([here.get(word, word) for word in words])
        printed = capsys.readouterr()
        assert code == 0, f"{page}:{line}: lakebed {' '.join(words)}\n{printed.out}{printed.err}"
        if words[:2] == ["hook", "create"]:
            hook = printed.out.split()[1]
    assert len(found) == count
