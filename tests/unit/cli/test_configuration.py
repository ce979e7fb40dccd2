"""The configuration file: instances by name, precedence, and secrets that are not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakebed.cli.grammar import Invocation
from tests.unit.cli.conftest import Cli


@pytest.fixture
def config(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    (tmp_path / "token").write_text("from-a-file\n", "utf-8")
    path.write_text(
        f"""
default = "test"
[instances.test]
url = "{url}"
[instances.prod]
url = "s3://bucket/lake"
log_url = "s3://logs/lake"
commit_via = "https://lake.example"
token = {{ file = "{tmp_path}/token" }}
options = {{ aws_region = "eu-west-1", aws_access_key_id = {{ env = "ACCESS" }}, aws_secret_access_key = "hush" }}
""",
        "utf-8",
    )
    monkeypatch.setenv("LAKEBED_CONFIG", str(path))
    monkeypatch.delenv("LAKEBED_INSTANCE", raising=False)
    return path


def test_an_instance_is_opened_by_its_name_or_as_the_default(
    cli: Cli, table: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKEBED_INSTANCE", raising=False)
    assert cli("-i", "test", "table", "list").out == f"{table}\n"
    assert cli("table", "list").out == f"{table}\n"
    monkeypatch.setenv("LAKEBED_INSTANCE", "test")
    assert cli("table", "list").out == f"{table}\n"


def test_an_option_wins_over_the_environment_and_that_over_the_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCESS", "id")
    cli = Invocation(instance_url="prod")
    assert cli.url() == "s3://bucket/lake"
    assert cli.log_url_in_force() == "s3://logs/lake"
    in_file = {"aws_region": "eu-west-1", "aws_access_key_id": "id", "aws_secret_access_key": "hush"}
    assert cli.options_in_force() == in_file
    monkeypatch.setenv("LAKEBED_STORAGE_OPTIONS", '{"aws_region": "eu-west-2", "aws_endpoint": "http://x"}')
    assert cli.options_in_force() == in_file | {"aws_region": "eu-west-2", "aws_endpoint": "http://x"}
    cli.storage_options["aws_region"] = "eu-west-3"
    assert cli.options_in_force()["aws_region"] == "eu-west-3"
    assert cli.named_instance is not None
    assert cli.named_instance.token() == "from-a-file"


def test_secrets_are_not_shown(cli: Cli, config: Path) -> None:
    for words in (["config", "show"], ["config", "show", "--json"]):
        ran = cli(*words, "--config", config)
        assert ran.code == 0
        assert "eu-west-1" in ran.out
        assert "hush" not in ran.out
        assert "from-a-file" not in ran.out
        assert "environment variable ACCESS" in ran.out
    assert json.loads(cli("config", "path", "--json").out) == {"path": str(config), "exists": True}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("instances = 3", "instances is to be tables such as [instances.prod]"),
        ("[instance.prod]", "unknown key 'instance'; keys: default, instances; did you mean 'instances'?"),
        ("[instances.prod]", 'instances.prod needs a url, such as url = "s3://bucket/lake"'),
        ('[instances.p]\nurl = "x"\ntoken = "hush"', "instances.p.token stands in the file; keep it elsewhere"),
        ('[instances.p]\nurl = "x"\ntoken = {env = "NO", file = "x"}', "must be a text, { env ="),
        ('[instances.p]\nurl = "x"\noptions = {a = 3}', "instances.p.options.a must be a text"),
        ("default = 3", "default = 3: must be a text"),
        ("default = ", "not TOML: Invalid value (at end of document)"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    cli: Cli, tmp_path: Path, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text, "utf-8")
    ran = cli("--config", path, "config", "show")
    assert ran.code == 2
    assert f"{path}: " in ran.err
    assert said in ran.err
    assert "hush" not in ran.err


def test_a_file_that_is_not_there_is_empty_unless_it_was_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nowhere"))
    monkeypatch.delenv("LAKEBED_CONFIG", raising=False)
    assert cli("config", "show").out.endswith("config.toml (not there)\n")
    assert cli("config", "show", "--config", tmp_path / "missing").code == 4
