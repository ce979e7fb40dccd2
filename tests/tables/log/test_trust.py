"""An instance that names a log elsewhere is opened only where the user has agreed to it."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakebed
from lakebed import Schema
from lakebed.cli.run import main
from lakebed.clock import random_token
from lakebed.errors import UsageError
from lakebed.log.locations import check_trusted
from lakebed.model.documents import decode_document, encode_document
from tests.tables.log.foreign_logs import move_log, unreached

SCHEMA = Schema(row_key={"k": "string"})


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """An instance, and its log URL, as another user made it."""
    url, log_url = str(tmp_path / "lake"), f"memory://{random_token()}"
    with monkeypatch.context() as other:
        other.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
        lakebed.create(url, log_url=log_url).create_table("t", SCHEMA)
    return url, log_url


def test_a_foreign_log_url_is_named_and_not_connected_to(foreign: tuple[str, str], tmp_path: Path) -> None:
    with unreached() as log_url:
        move_log(foreign[0], log_url)
        with pytest.raises(UsageError, match="keeps its log at postgresql") as caught:
            lakebed.open(foreign[0])
    assert caught.value.log_url == log_url
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize("how", ["named", "trusted"])
def test_an_agreement_is_remembered(foreign: tuple[str, str], how: str) -> None:
    url, log_url = foreign
    agreed = lakebed.open(url, log_url=log_url) if how == "named" else lakebed.open(url, trust_log_url=True)
    assert agreed.tables() == ["t"]
    assert lakebed.open(url).tables() == ["t"]


def test_what_one_created_oneself_is_remembered(tmp_path: Path) -> None:
    url, log_url = str(tmp_path / "lake"), f"memory://{random_token()}"
    lakebed.create(url, log_url=log_url)
    assert lakebed.open(url).log_url == log_url


def test_an_agreement_holds_for_one_log_url(foreign: tuple[str, str]) -> None:
    url, log_url = foreign
    lakebed.open(url, log_url=log_url)
    marker = Path(url, "instance.json")
    changed = decode_document(marker.read_bytes(), "instance.json") | {"log_url": "memory://another"}
    marker.write_bytes(encode_document(changed))
    with pytest.raises(UsageError, match="memory://another"):
        lakebed.open(url)


@pytest.mark.parametrize("log_url", [None, "memory://one"])
def test_a_log_url_that_is_not_the_instances_is_refused(tmp_path: Path, log_url: str | None) -> None:
    url = str(tmp_path / "lake")
    lakebed.create(url, log_url=log_url)
    with pytest.raises(UsageError, match="keeps its log"):
        lakebed.open(url, log_url="memory://elsewhere")


@pytest.mark.parametrize(
    ("root", "log"),
    [("s3://b/lake", "s3://b/log"), ("file:///lake", "/log"), ("file:///lake", "file:///log"), ("az://c/x", None)],
)
def test_a_log_in_the_same_store_needs_no_agreement(root: str, log: str | None) -> None:
    check_trusted(root, log, None, trusted=False)


@pytest.mark.parametrize(
    ("root", "log"),
    [
        ("s3://b/lake", "s3://c/log"),
        ("s3://b/lake", "gs://b/log"),
        ("s3://b/lake", "/log"),
        ("file:///lake", "postgresql://host/db"),
        ("s3://b/lake", "postgresql://b/lake"),
        ("file:///lake", "dynamodb://table"),
    ],
)
def test_a_log_elsewhere_needs_one(root: str, log: str) -> None:
    with pytest.raises(UsageError, match="trust_log_url"):
        check_trusted(root, log, None, trusted=False)


def test_a_configuration_that_cannot_be_read_or_written_asks_again(foreign: tuple[str, str], tmp_path: Path) -> None:
    url, log_url = foreign
    (tmp_path / "config").write_text("in the way")
    assert lakebed.open(url, log_url=log_url).tables() == ["t"]
    with pytest.raises(UsageError, match="keeps its log"):
        lakebed.open(url)


def test_the_shell_asks_once(foreign: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    url, log_url = foreign
    command = ["--instance", url, "table", "list"]
    assert main(command) == 2
    assert f"--log-url {log_url}" in capsys.readouterr().err
    assert main([*command, "--log-url", log_url]) == 0
    assert main(command) == 0
