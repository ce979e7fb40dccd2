"""An instance whose logs are on PostgreSQL, in process, from another process and by the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, clock
from lakebed.cli import main

SCHEMA = lakebed.Schema({"k": "string"}, values={"v": "int64"})


def test_an_instance_is_whole(cluster, tmp_path):
    """Written here, read and written by another process, read here again; no log and no password beside the data."""
    url = str(tmp_path / "lake")
    table = lakebed.create(url, log_url=cluster.url()).create_table("t", SCHEMA)
    table.write(pa.table({"k": ["a", "b"], "v": [1, 2]}))
    other = f"""
        import lakebed, pyarrow as pa
        table = lakebed.open({url!r}).table("t")
        assert table.get("b").column("v").to_pylist() == [2]
        table.write(pa.table({{"k": ["c"], "v": [3]}}))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(other)], check=True, timeout=60)
    assert table.get("c").column("v").to_pylist() == [3]
    assert {path.parent.name for path in Path(url).rglob("*.ndjson")} == {"latest"}
    assert json.loads(Path(url, "instance.json").read_bytes())["log_url"] == cluster.url()


def test_the_command_line_makes_and_uses_one(cluster, tmp_path, capsys):
    url = str(tmp_path / "lake")
    assert main(["--instance", url, "init", "--log-url", cluster.url(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["log_url"] == cluster.url()
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"row_key": {"k": "string"}}), "utf-8")
    assert main(["--instance", url, "table", "create", "t", "--schema", str(schema)]) == 0
    assert main(["--instance", url, "table", "list"]) == 0
    assert "t" in capsys.readouterr().out


def test_the_command_line_does_not_repeat_a_password(cluster, tmp_path, capsys):
    url = cluster.url().replace("lakebed@", "lakebed:s3kr1t@")
    assert main(["--instance", str(tmp_path / "lake"), "init", "--log-url", url]) == 2
    said = capsys.readouterr()
    assert "PGPASSWORD" in said.err
    assert "s3kr1t" not in said.out + said.err


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
@pytest.mark.parametrize("end", ["", "?client_encoding=sql_ascii"])
def test_a_database_of_any_encoding_keeps_the_log(cluster, tmp_path, encoding, end):
    name = f"{encoding.lower()}_{clock.random_token()}"
    made = f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    cluster.sql(made, database="postgres")
    lake = lakebed.create(tmp_path / "löke", log_url=cluster.url(name) + end)
    lake.create_table("t", Schema({"k": "string"})).write({"k": ["é"]})
    assert lakebed.open(tmp_path / "löke")["t"].scan().read_all()["k"].to_pylist() == ["é"]
