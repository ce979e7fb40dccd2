"""The command line on a small table, in this process or in one of its own."""

from __future__ import annotations

import collections
import contextlib
import json
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli import main
from tests.tables.cli.shapes import differences, documented

ROWS = 3_000


def table_beside_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> lakebed.Table:
    """An empty table, whose instance commands find; three files of rows lie beside it, in the folder of the process."""
    monkeypatch.setenv("LAKEBED_INSTANCE", str(tmp_path / "lake"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for part in range(3):
        keys = [f"k{(i * 7919 + part) % ROWS:05}" for i in range(part, ROWS, 3)]
        pq.write_table(pa.table({"k": keys, "n": range(len(keys))}), tmp_path / "in" / f"{part}.parquet")
    instance = lakebed.create(str(tmp_path / "lake"))
    return instance.create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))


def slow_to_import(folder: Path) -> lakebed.Instance:
    """An empty table, of which each import makes dozens of files; two files of 10,000 rows lie beside the instance."""
    instance = lakebed.create(folder / "lake")
    table = instance.create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))
    table.set(file_bytes=16_384, row_group_rows=1000)
    (folder / "in").mkdir()
    for part in range(2):
        keys = [f"k{(i * 7919) % 10_000:06}-{part}" for i in range(10_000)]
        pq.write_table(pa.table({"k": keys, "n": range(len(keys))}), folder / "in" / f"{part}.parquet")
    return instance


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    code = main([*words, "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    document = json.loads(said.out)
    command = " ".join(words[:2]) if words[0] in ("requests", "table") else words[0]
    command += " --dry-run" if "--dry-run" in words else ""
    assert not differences(document, documented()[command], command)
    return document


def counted(rows: pa.Table) -> collections.Counter[tuple[str, int]]:
    return collections.Counter(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))


def alive(mark: str) -> list[psutil.Process]:
    """Processes that were started with the mark in their environment, wherever in the tree they are now."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("LAKEBED_TEST") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def is_spark(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any("org.apache.spark" in word for word in process.cmdline())
    return False
