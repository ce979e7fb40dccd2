"""A command line in this process, and an instance with a table of readings for it to work on."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.cli import main
from lakebed.storage import telemetry
from tests.waiting import join_checkpoints

SCHEMA = {
    "row_key": {"place": "string", "sensor": "int32"},
    "sort_key": {"at": "timestamp[us, tz=UTC]"},
    "values": {"reading": "double", "note": "string"},
}


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Ran]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Runs one command line against the instance at ``url``."""
    monkeypatch.setenv("LAKEBED_INSTANCE", url)
    # Not the configuration of the user who runs the tests.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path(url).parent / "config"))

    def run(*words: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    before = telemetry.sink
    yield run
    # With -v a command measures until its process ends, which is that of all tests here.
    telemetry.install(before)


@pytest.fixture
def schema_file(tmp_path: Path) -> Path:
    return write_schema(tmp_path)


def write_schema(folder: Path) -> Path:
    """A file with the fields of the table."""
    path = folder / "schema.json"
    path.write_text(json.dumps(SCHEMA), "utf-8")
    return path


def readings(*rows: tuple[str, int, int, float | None, str | None]) -> pa.Table:
    schema = lakebed.Schema.from_json(SCHEMA).arrow
    columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    return write_parquet(tmp_path)


def write_parquet(folder: Path) -> Path:
    """Five readings of two places, out of order."""
    path = folder / "readings.parquet"
    rows = [("Ulm", 1, 60_000_000, 4.5, None), ("Bad, Bank", 7, 0, float("nan"), ""), ("Ulm", 1, 0, 3.5, "x")]
    pq.write_table(readings(*rows, ("Ulm", -2, 0, None, "y"), ("Ulm", 30, 0, 1.0, "\U0001f980")), path)
    return path


def made(lake: Path, *lines: Sequence[object]) -> list[str]:
    """What each of some command lines prints that are run against an instance; each has to succeed.

    Afterwards no checkpoint is being written: the folder of the instance can be copied.
    """
    printed = []
    for words in lines:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = main(["--instance", str(lake), *map(str, words)])
        assert code == 0, err.getvalue()
        printed.append(out.getvalue())
    join_checkpoints()
    return printed


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An instance with the table, of which each test has a copy."""
    folder = tmp_path_factory.mktemp("prepared")
    lake, schema, parquet = folder / "lake", write_schema(folder), write_parquet(folder)
    made(lake, ["init"], ["table", "create", "readings", "--schema", schema], ["write", "readings", parquet])
    return lake


@pytest.fixture
def table(cli: Cli, schema_file: Path, parquet: Path, prepared: Path, url: str) -> str:
    """A table with those readings."""
    shutil.copytree(prepared, url)
    return "readings"
