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
    assert "1 row added" in ran("write", "t", f"{bucket}/in/a.csv", "--key", "id")
    assert "4 rows added" in ran("write", "t", f"{bucket}/in/**/*.*")
    assert "4 rows added" in ran("write", "t", f"{bucket}/in/")
    # The bucket holds the instance as well.
    assert "4 rows added" in ran("write", "t", f"{bucket}/")
    assert "has only files of the instance" in ran("write", "t", f"{bucket}/lake", code=2)
    store.replace("a.csv", b"id;born\n1;soon\n")
    assert f"{bucket}/in/a.csv, line 2, column born: 'soon' is not date32" in ran("write", "t", f"{bucket}/in", code=3)
    assert ran("count", "t").strip() == "13"
