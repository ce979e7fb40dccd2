"""The configuration file: instances and profiles by name, precedence, and secrets that are not shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakebed.cli.invocation import Invocation
from lakebed.errors import UsageError
from tests.tables.cli.conftest import Cli


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
        ("instances = 3", "instances must be tables such as [instances.prod]"),
        ("[instance.prod]", "unknown key 'instance'; keys: default, instances, profiles; did you mean 'instances'?"),
        ("[instances.prod]", 'instances.prod needs a url, such as url = "s3://bucket/lake"'),
        ('[instances.p]\nurl = "x"\ntoken = "hush"', "instances.p.token stands in the file; keep it elsewhere"),
        ('[instances.p]\nurl = "x"\ntoken = {env = "NO", file = "x"}', "must be a text, { env ="),
        ('[instances.p]\nurl = "x"\noptions = {a = 3}', "instances.p.options.a must be a text"),
        ("default = 3", "default = 3: must be a text"),
        ("profiles = 3", "profiles must be tables such as [profiles.prod]"),
        ("[profiles]\np = 3", "profiles.p must be a table such as [profiles.prod]"),
        ('[profiles.p]\nformatt = "csv"', "profiles.p: unknown key 'formatt'; keys: commit_via, format, instance,"),
        ('[profiles.p]\nformatt = "csv"', "; did you mean 'format'?"),
        ('[profiles.p]\nformat = "cvs"', "profiles.p.format = 'cvs': must be one of table, csv, json"),
        ("[profiles.p]\nverbose = true", "profiles.p.verbose = True: must be one of 0, 1, 2"),
        ("[profiles.p]\nquiet = 1", "profiles.p.quiet = 1: must be true or false"),
        ("[profiles.p]\ninstance = 1", "profiles.p.instance = 1: must be a text"),
        ("[profiles.p]\noptions = {a = 3}", "profiles.p.options.a must be a text"),
        ('[profiles.p]\njson = true\nformat = "csv"', "profiles.p: json and format exclude each other; keep one"),
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
    monkeypatch.delenv("LAKEBED_INSTANCE")
    assert cli("config", "show").out.endswith("config.toml (not there)\n")
    assert cli("config", "show", "--config", tmp_path / "missing").code == 4


PROFILES = """
[profiles.nightly]
instance = "test"
format = "csv"
quiet = true

[profiles.lines]
instance = "test"
json = true

[profiles.logged]
verbose = 1
log_format = "json"

[profiles.cloud]
instance = "prod"
log_url = "s3://other/lake"
commit_via = "https://other.example"
options = { aws_region = "eu-west-9", aws_endpoint = { env = "ENDPOINT" } }

[profiles.typo]
instance = "tset"
"""


@pytest.fixture
def profiles(config: Path) -> Path:
    config.write_text(config.read_text("utf-8").replace('default = "test"', "") + PROFILES, "utf-8")
    return config


def test_a_profile_has_values_for_the_options_of_every_command(cli: Cli, table: str, profiles: Path) -> None:
    assert cli("--profile", "nightly", "get", table, "Ulm", "1").out.startswith("place,sensor,")
    assert cli("get", table, "Nowhere", "1", "--profile", "nightly").err == ""
    assert cli("get", table, "Nowhere", "1", "-i", "test").err == "no rows with that key\n"
    assert cli("--profile", "lines", "get", table, "Ulm", "1").lines[0]["place"] == "Ulm"
    logged = cli("--profile", "logged", "-i", "test", "get", table, "Ulm", "1").err.splitlines()
    assert {json.loads(line)["level"] for line in logged} == {"info"}


def test_a_profile_is_named_by_the_environment(
    cli: Cli, table: str, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBED_PROFILE", "nightly")
    assert cli("get", table, "Ulm", "1").out.startswith("place,sensor,")
    assert cli("--profile", "lines", "get", table, "Ulm", "1").lines[0]["place"] == "Ulm"


def test_what_the_command_line_says_wins_over_a_profile(cli: Cli, table: str, profiles: Path) -> None:
    row = cli("--profile", "nightly", "get", table, "Ulm", "1", "--json").lines[0]
    assert row["place"] == "Ulm"
    assert cli("--profile", "lines", "get", table, "Ulm", "1", "--format", "csv").out.startswith("place,sensor,")
    assert "INFO lakebed.read" in cli("--profile", "nightly", "-v", "get", table, "Ulm", "1").err


def test_errors_are_json_if_the_profile_says_json(cli: Cli, table: str, profiles: Path) -> None:
    for words in (["get", "nothing", "Ulm"], ["get", table, "--limt", "3"], ["--limt", "get"]):
        said = cli("--profile", "lines", *words).err.splitlines()[-1]
        assert json.loads(said)["error"]["message"]


def test_a_profile_ranks_where_it_is_named(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCESS", "id")
    monkeypatch.setenv("ENDPOINT", "http://x")
    monkeypatch.setenv("LAKEBED_INSTANCE", "test")
    monkeypatch.setenv("LAKEBED_COMMIT_VIA", "https://variable.example")
    monkeypatch.setenv("LAKEBED_STORAGE_OPTIONS", '{"aws_region": "eu-west-2"}')

    def found(cli: Invocation) -> tuple[object, ...]:
        via = cli.chosen("commit_via")
        return cli.url(), via and via[0], cli.log_url_in_force(), cli.options_in_force()["aws_region"]

    given = found(Invocation(profile_name="cloud"))
    assert given == ("s3://bucket/lake", "https://other.example", "s3://other/lake", "eu-west-9")
    monkeypatch.setenv("LAKEBED_PROFILE", "cloud")
    url, *others = found(Invocation())
    assert url != "s3://bucket/lake"
    assert others == ["https://variable.example", "s3://other/lake", "eu-west-2"]
    for name in ("INSTANCE", "COMMIT_VIA", "STORAGE_OPTIONS"):
        monkeypatch.delenv(f"LAKEBED_{name}")
    assert found(Invocation()) == given
    # Of the instance, where the profile has no such option.
    assert Invocation().options_in_force()["aws_secret_access_key"] == "hush"
    assert found(Invocation(instance_url="s3://b/x", log_url="s3://b/y"))[:3] == (
        "s3://b/x",
        "https://other.example",
        "s3://b/y",
    )


def test_an_unknown_profile_is_refused(cli: Cli, profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = cli("--profile", "nightyl", "table", "list")
    assert ran.code == 4
    assert ran.err == (
        f"lakebed: --profile: no profile 'nightyl' in {profiles}; profiles: cloud, lines, logged, nightly, typo; "
        "did you mean 'nightly'?\n"
    )
    monkeypatch.setenv("LAKEBED_PROFILE", "x")
    assert "LAKEBED_PROFILE: no profile 'x'" in cli("table", "list").err
    assert "did you mean 'test'?" in cli("--profile", "typo", "table", "list").err


def test_the_values_in_force_are_shown_with_where_they_are_from(
    cli: Cli, profiles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBED_COMMIT_VIA", "https://variable.example")
    ran = cli("config", "show", "--profile", "cloud", "--option", "aws_region=eu-west-3", "-q")
    assert ran.out.partition("in force:\n")[2].splitlines() == [
        "  instance: prod (profile cloud)",
        "  log_url: s3://other/lake (profile cloud)",
        "  commit_via: https://other.example (profile cloud)",
        "  quiet: true (command line)",
        "  option aws_region: eu-west-3 (command line)",
        "  option aws_access_key_id: in the environment variable ACCESS (instance prod)",
        "  option aws_secret_access_key: (not shown) (instance prod)",
        "  option aws_endpoint: in the environment variable ENDPOINT (profile cloud)",
    ]
    assert "profile nightly\n  instance: test\n  format: csv\n  quiet: true\n" in ran.out
    with pytest.raises(UsageError, match=r"profile cloud: option aws_endpoint is in the environment variable ENDPOINT"):
        Invocation(profile_name="cloud", storage_options={"aws_access_key_id": "x"}).options_in_force()
    monkeypatch.setenv("LAKEBED_PROFILE", "lines")
    document = json.loads(cli("config", "show").out)
    assert {"key": "json", "value": True, "source": "profile lines"} in document["in_force"]
    assert {"key": "commit_via", "value": "https://variable.example", "source": "LAKEBED_COMMIT_VIA"} in (
        document["in_force"]
    )
