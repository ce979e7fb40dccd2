"""The folder in which the mistakes are made: an instance with two tables, and files that are almost right."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed.cli import main

SCHEMA = lakebed.Schema(
    {"place": "string", "sensor": "int32"},
    {"at": "timestamp[us, tz=UTC]"},
    {"reading": "double", "note": "string"},
)
HOME = "/home/ann"
"""Stands for the folder in messages."""


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """The folder, as the current one, and the environment of a user who has set LAKEBED_INSTANCE."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name).resolve()
        fill(home)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEBED")}
        ours = {"LAKEBED_INSTANCE": str(home / "lake"), "HOME": name, "XDG_CONFIG_HOME": name, "COLUMNS": "100"}
        with mock.patch.dict(os.environ, kept | ours, clear=True), mock.patch.object(sys, "stdin", io.StringIO()):
            os.chdir(home)
            try:
                yield home
            finally:
                os.chdir(before)


def fill(home: Path) -> None:
    lake = lakebed.create(str(home / "lake"))
    readings = lake.create_table("readings", SCHEMA)
    rows = {"place": ["Ulm", "Ulm"], "sensor": [1, 2], "at": [0, 0], "reading": [3.5, 4.5], "note": ["x", None]}
    data = pa.table(rows).cast(SCHEMA.arrow.remove_metadata())
    readings.write(data)
    readings.tag("monday")
    prices = lakebed.Schema({"id": "int64"}, {}, {"price": "double"})
    lake.create_table("prices", prices, merge=lakebed.Latest())
    pq.write_table(data, home / "readings.parquet")
    pq.write_table(data.drop_columns(["sensor"]), home / "no_sensor.parquet")
    pq.write_table(data.append_column("colour", pa.array(["red", "blue"])), home / "colour.parquet")
    pq.write_table(data.set_column(3, "reading", pa.array(["3.5", "warm"])), home / "text.parquet")
    files = {
        "prices.csv": "id,price\n1,2.5\n2,expensive\n",
        "prices.xlsx": "PK",
        "empty.csv": "",
        "schema.json": '{"row_key": {"id": "int64"}, "values": {"price": "dobule"}}',
        "broken.json": '{"row_key": {"id": "int64"}',
        "no_key.json": '{"values": {"price": "double"}}',
        "broken.toml": "[instances.prod\n",
        "token.toml": '[instances.prod]\nurl = "s3://bucket/lake"\ntoken = "hush"\n',
        "misspelt.toml": '[instances.prod]\nurl = "s3://bucket/lake"\noption = {}\n',
        "prod.toml": '[instances.prod]\nurl = "lake"\noptions = { aws_secret_access_key = { env = "SECRET" } }\n',
        "keys.txt": "Ulm,1\nBonn,many\n",
    }
    for name, text in files.items():
        (home / name).write_text(text, "utf-8")


def said(home: Path, line: str) -> str:
    """The exit code of a command line and what it prints to stderr, without the name of the folder."""
    with contextlib.redirect_stderr(io.StringIO()) as err, contextlib.redirect_stdout(io.StringIO()):
        code = main(shlex.split(line)[1:])
    return f"{without(home, err.getvalue())}exit code {code}\n"


def without(home: Path, text: str) -> str:
    return text.replace(str(home), HOME)
