"""``--commit-via`` and its variables."""

import pyarrow.parquet as pq
import pytest

import lakebed
from tests.processes.web.serving import serving
from tests.tables.cli.conftest import readings


@pytest.fixture
def source(tmp_path, cli, schema_file):
    """A file with a row, for the table ``t``."""
    assert cli("init").code == 0
    assert cli("table", "create", "t", "--schema", schema_file).code == 0
    pq.write_table(readings(("a", 1, 1, 0.5, "x")), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_a_write_goes_through_the_service(cli, source, url):
    with serving(lakebed.open(url)) as service:
        assert cli("write", "t", source, "--commit-via", service).code == 0
    assert cli("count", "t").out.strip().startswith("1")


def test_the_variables_are_the_default_and_a_service_that_is_down_fails_the_command(cli, source, monkeypatch):
    monkeypatch.setenv("LAKEBED_COMMIT_VIA", "http://127.0.0.1:9")
    monkeypatch.setenv("LAKEBED_TOKEN", "sesame")
    ran = cli("write", "t", source)
    assert ran.code != 0
    assert "http://127.0.0.1:9" in ran.err
    assert "sesame" not in ran.err
    # A read needs no service.
    assert cli("count", "t").code == 0


def test_a_token_alone_does_not_matter(cli, source, monkeypatch):
    """It is of other clients of a service."""
    monkeypatch.setenv("LAKEBED_TOKEN", "sesame")
    assert cli("count", "t").code == 0
