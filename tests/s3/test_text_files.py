"""Text in a bucket through the command line: a file, a folder and a glob, looked at and written."""

from __future__ import annotations

import gzip

import pytest

from lakebed.cli import main
from lakebed.storage import connect


def test_csv_and_json_of_a_bucket_become_a_table(
    s3_server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3_server.storage_options.items():
        monkeypatch.setenv({"endpoint_url": "AWS_ENDPOINT_URL"}.get(name, name.upper()), value)
    bucket = s3_server.new_bucket()
    monkeypatch.setenv("LAKEBED_INSTANCE", f"{bucket}/lake")
    store = connect(f"{bucket}/in", s3_server.storage_options)
    store.replace("a.csv", b"id;born\n1;1990-01-31\n")
    store.replace("deep/b.csv.gz", gzip.compress(b"id;born\n2;NA\n"))
    store.replace("c.json", b'[{"id": 3}, {"id": 4, "born": "1991-01-31"}]')

    def ran(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(list(words)) == code
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    ran("init")
    assert "born  date32[day]  1990-01-31" in ran("schema", "infer", f"{bucket}/in/a.csv")
    assert "born" in ran("schema", "infer", f"{bucket}/in/a.csv".replace("s3:", "S3:"))
    assert "1 row added" in ran("write", "t", f"{bucket}/in/a.csv", "--key", "id")
    assert "4 rows added" in ran("write", "t", f"{bucket}/in/**/*.*")
    assert "4 rows added" in ran("write", "t", f"{bucket}/in/")
    # The bucket holds the instance as well.
    assert "4 rows added" in ran("write", "t", f"{bucket}/")
    assert "has only files of the instance" in ran("write", "t", f"{bucket}/lake", code=2)
    store.replace("a.csv", b"id;born\n1;soon\n")
    assert f"{bucket}/in/a.csv, line 2, column born: 'soon' is not date32" in ran("write", "t", f"{bucket}/in", code=3)
    assert ran("count", "t").strip() == "13"


def test_options_of_the_command_line_open_files_that_are_looked_at(
    s3_server, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = s3_server.new_bucket()
    connect(f"{bucket}/in", s3_server.storage_options).replace("a.csv", b"id;born\n1;1990-01-31\n")
    given = [word for name, value in s3_server.storage_options.items() for word in ("--option", f"{name}={value}")]
    file = f"{bucket}/in/a.csv"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for instance in ([], ["-i", str(tmp_path / "lake")], ["-i", f"{bucket}/lake"]):
        assert main([*instance, *given, "schema", "infer", file]) == 0
        assert "born  date32[day]  1990-01-31" in capsys.readouterr().out
    assert main(["-i", f"{bucket}/lake", *given, "init"]) == 0
    create = ["table", "create", "t", "--schema-from", file, "--key", "id"]
    assert main(["-i", f"{bucket}/lake", *given, *create]) == 0


def test_a_variable_allows_plain_http_for_the_files_of_a_local_instance(
    s3_server, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in s3_server.storage_options.items():
        monkeypatch.setenv({"endpoint_url": "AWS_ENDPOINT_URL"}.get(name, name.upper()), value)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("LAKEBED_INSTANCE", str(tmp_path / "lake"))
    bucket = s3_server.new_bucket()
    connect(f"{bucket}/in", s3_server.storage_options).replace("a.csv", b"id;born\n1;1990-01-31\n")
    assert main(["init"]) == 0
    assert main(["write", "t", f"{bucket}/in/a.csv", "--key", "id"]) == 0
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")
    assert main(["write", "t", f"{bucket}/in/a.csv"]) == 5
    assert "for plain http set allow_http=true" in capsys.readouterr().err
