"""Each shape in docs/cli-json.md against what the command prints. Those that need Spark: tests/spark/test_cli.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.cli.reference import every_command
from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.table.tracker.runs import Begun, RunOutcome, TaskRun
from tests.tables.cli.conftest import Cli, made, write_parquet, write_schema
from tests.tables.cli.shapes import differences, documented

ON_SPARK = {
    "import",
    "attach",
    "export",
    "ingest",
    "compact",
    "maintain",
    "maintain --all",
    "table rewrite",
    "erase-report",
}

OF_A_DATABASE = {"follow run", "follow drop"}
"""Tested in tests/postgres/test_follow.py."""

OF_A_SERVICE = {"query submit", "query list", "query show", "query drop", "query fetch"}
"""Tested in tests/service/test_submitted_queries.py."""

OF_A_CATALOG = {"publish"}
"""Tested in tests/tables/publish/test_catalogs.py."""

WORDS: dict[str, list[str]] = {
    "init": ["init", "memory://{token}"],
    "table create": ["table", "create", "new", "--schema", "{schema}"],
    "table list": ["table", "list"],
    "table show": ["table", "show", "readings"],
    "table alter --rename-to": ["table", "alter", "readings", "--rename-to", "other"],
    "table drop": ["table", "drop", "readings", "--yes"],
    "table alter --online": ["table", "alter", "readings", "--online"],
    "table pause": ["table", "pause", "readings", "compaction"],
    "table resume": ["table", "resume", "readings"],
    "table alter": ["table", "alter", "strict", "--widen", "count", "int64"],
    "backup create": ["backup", "create", "{empty}"],
    "backup restore": ["-i", "{empty}", "backup", "restore", "{url}"],
    "hook create": ["hook", "create", "readings", "--url", "http://127.0.0.1:9/"],
    "hook list": ["hook", "list"],
    "follow create": ["follow", "create", "postgresql://h/d"],
    "follow pause": ["follow", "pause", "shop"],
    "follow resume": ["follow", "resume", "shop"],
    "follow list": ["follow", "list"],
    "hook drop": ["hook", "drop", "{hook}"],
    "settings show": ["settings", "show", "readings"],
    "settings set": ["settings", "set", "readings", "split_rows=10"],
    "settings show --defaults": ["settings", "show", "--defaults"],
    "write": ["write", "readings", "{parquet}"],
    "schema infer": ["schema", "infer", "{csv}", "--key", "id"],
    "get": ["get", "readings", "Ulm", "1"],
    "get --keys": ["get", "readings", "--keys", "{keys}"],
    "scan": ["scan", "readings"],
    "sql": ["sql", "SELECT place, reading FROM readings"],
    "sql --export": ["sql", "SELECT place, reading FROM readings", "--export", "{empty}"],
    "count": ["count", "readings"],
    "sample": ["sample", "readings", "2"],
    "tail": ["tail", "readings", "--since", "0"],
    "prefixes": ["prefixes", "readings", "--depth", "1"],
    "explain": ["explain", "readings", "Ulm", "1"],
    "delete": ["delete", "merging", "Ulm", "1"],
    "remove": ["remove", "readings", "--prefix", "Ulm", "--yes"],
    "requests submit": ["requests", "submit", "readings", "{parquet}"],
    "requests list": ["requests", "list", "readings"],
    "requests drop": ["requests", "drop", "readings", "{parquet}"],
    "compact --dry-run": ["compact", "readings", "--dry-run"],
    "split": ["split", "readings"],
    "split --dry-run": ["split", "readings", "--dry-run"],
    "join": ["join", "readings"],
    "join --dry-run": ["join", "readings", "--dry-run"],
    "gc": ["gc"],
    "table repair": ["table", "repair", "readings"],
    "table repair --dry-run": ["table", "repair", "readings", "--dry-run"],
    "table rewrite --dry-run": ["table", "rewrite", "readings", "--delete-where", "reading > 1", "--dry-run"],
    "restore": ["restore", "readings", "--to", "1", "--yes"],
    "table files": ["table", "files", "readings"],
    "table partitions": ["table", "partitions", "readings"],
    "view create": ["view", "create", "rooms", "--source", "readings", "--select", "{query}", "--key", "place"],
    "view refresh": ["view", "refresh", "rooms"],
    "index create": ["index", "create", "by_reading", "--table", "merging", "--on", "reading"],
    "index refresh": ["index", "refresh", "by_place"],
    "index list": ["index", "list", "merging"],
    "index drop": ["index", "drop", "by_place"],
    "tag create": ["tag", "create", "readings", "now"],
    "tag drop": ["tag", "drop", "readings", "before"],
    "tag list": ["tag", "list", "readings"],
    "token create": ["token", "create", "ann", "--role", "read", "--table", "readings"],
    "token list": ["token", "list"],
    "token drop": ["token", "drop", "{token_id}"],
    "access-key create": ["access-key", "create", "ann", "--role", "read", "--table", "readings", "--at", "before"],
    "access-key list": ["access-key", "list"],
    "access-key drop": ["access-key", "drop", "{access_key_id}"],
    "role create": ["role", "create", "r", "--table", "readings", "--where", "place = 'Ulm'", "--hide", "reading"],
    "role list": ["role", "list"],
    "role drop": ["role", "drop", "some"],
    "history": ["history", "readings"],
    "history --failures": ["history", "readings", "--failures"],
    "status": ["status"],
    "migrate": ["migrate", "readings", "{folder}", "--from", "hive"],
    "doctor": ["doctor"],
    "docs": ["docs"],
    "apply": ["apply", "{lake}", "--yes"],
    "dump": ["dump"],
    "config path": ["config", "path"],
    "config show": ["config", "show"],
    "jobs list": ["jobs", "readings"],
    "jobs show": ["jobs", "show", "{parked}"],
    "jobs retry": ["jobs", "retry", "{parked}"],
    "history --entries": ["history", "readings", "--entries"],
    "verify --log": ["verify", "readings", "--log"],
    "verify": ["verify", "readings", "--sample", "50%"],
}

PARKED = "0192aaaa-0000-7000-8000-0123456789ab"


def fail(table: lakebed.Table) -> None:
    """Put a call on record that failed, with a task, and is parked."""
    tracker, error = table.tracker, Code.INTERNAL_ERROR("it failed")
    tracker.begin(Begun(operation="import", table=table.name, table_id=table.id, base_version=1, id=PARKED, tries=3))
    tracker.plan_tasks(PARKED, 1, "workers")
    tracker.task(TaskRun(job=PARKED, number=0, host="a", error=tracker.error_of(error)))
    tracker.end(PARKED, RunOutcome.FAILED, error=error, parked=True)
    tracker.flush()


QUERY = "SELECT place, reading FROM source"
VIEW = ["view", "create", "rooms", "--source", "readings", "--select", QUERY, "--key", "place"]


@pytest.fixture(scope="module")
def filled(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """An instance of which each test has a copy, and what words of commands stand for.

    It has two runs, and partitions above their limit: so that plans and reports are not empty.
    """
    folder = tmp_path_factory.mktemp("filled")
    lake = shutil.copytree(prepared, folder / "lake")
    schema, parquet = write_schema(folder), write_parquet(folder)
    strict, csv, keys, document = (folder / name for name in ("strict.json", "users.csv", "keys.csv", "lake.json"))
    key, count = ({"id": i, "name": n, "type": "int32", "nullable": False} for i, n in enumerate(("key", "count"), 1))
    strict.write_text(json.dumps({"row_key": [key], "values": [count]}), "utf-8")
    csv.write_text("id,name\n1,Ann\n", "utf-8")
    keys.write_text("Ulm,1\nRom,2\n", "utf-8")
    document.write_text('{"tables": {"t": {"schema": {"row_key": {"k": "string"}}}}}', "utf-8")
    hive = folder / "hive"
    hive.mkdir()
    shutil.copy(parquet, hive)
    *_, token, access_key, hook = made(
        lake,
        ["write", "readings", parquet],
        ["requests", "submit", "readings", parquet, "--again"],
        ["settings", "set", "readings", "split_rows=3"],
        ["tag", "create", "readings", "before"],
        ["table", "create", "strict", "--schema", strict],
        ["table", "create", "merging", "--schema", schema, "--merge", "latest"],
        ["index", "create", "by_place", "--table", "merging", "--on", "place"],
        ["table", "create", "gone", "--schema", schema],
        ["write", "gone", parquet],
        ["table", "drop", "gone", "--yes"],
        ["follow", "create", "postgresql://h/shop"],
        ["role", "create", "some", "--table", "readings", "--mask", "reading=NULL"],
        ["--json", "token", "create", "bob", "--role", "some", "--expires", "never"],
        ["--json", "access-key", "create", "bob", "--role", "some", "--table", "readings", "--prefix", "Ulm"],
        ["--json", "hook", "create", "readings", "--command", "true"],
    )
    fail(lakebed.open(str(lake)).table("readings"))
    return lake, {
        "folder": hive,
        "hook": json.loads(hook)["hook"],
        "token_id": json.loads(token)["id"],
        "access_key_id": json.loads(access_key)["id"],
        "schema": schema,
        "parquet": parquet,
        "csv": csv,
        "keys": keys,
        "lake": document,
        "query": QUERY,
        "parked": PARKED,
    }


@pytest.mark.parametrize("command", WORDS)
def test_the_output_has_the_documented_shape(
    command: str, cli: Cli, url: str, filled: tuple[Path, dict[str, Any]]
) -> None:
    lake, given = filled
    shutil.copytree(lake, url)
    if command == "view refresh":
        assert cli(*VIEW).code == 0
    words = [word.format(**given, token=random_token(), url=url, empty=f"{url}-out") for word in WORDS[command]]
    ran = cli("--json", *words)
    assert ran.code == 0, ran.err
    documents = ran.lines
    assert documents
    for document in documents:
        assert not differences(document, documented()[command], command)


def test_every_command_is_documented_and_every_shape_is_tested() -> None:
    assert set(documented()) == {"error", *WORDS, *ON_SPARK, *OF_A_SERVICE, *OF_A_CATALOG, *OF_A_DATABASE}
    documents = {command.partition(" --")[0] for command in documented()} - {"error"}
    found = {context.command_path.removeprefix("lakebed ") for _, context in every_command()}
    assert documents == found - {"completion", "serve", "top"}


def test_no_option_of_a_command_takes_the_place_of_one_that_all_have() -> None:
    """A file of settings for Kafka was read as the configuration of Lakebed."""
    for command, context in every_command():
        names = [one.name for one in command.params]
        assert len(set(names)) == len(names), context.command_path


@pytest.mark.parametrize(
    ("document", "shape"),
    [
        ({"a": 1}, {"a": "string"}),
        ({"a": True}, {"a": "integer"}),
        ({"a": 1, "b": 2}, {"a": "integer"}),
        ({}, {"a": "integer or null"}),
        ({"a": None}, {"a": "integer"}),
        ([1, "x"], ["integer"]),
        ({"x": 1}, "settings"),
    ],
)
def test_another_shape_is_noticed(document: Any, shape: Any) -> None:
    assert differences(document, shape)


def test_an_error_is_json_on_stderr_after_its_message(cli: Cli, table: str) -> None:
    ran = cli("get", "nothing", "x", "--json")
    assert (ran.code, ran.out) == (4, "")
    message, document = ran.err.splitlines()
    assert message.startswith("lakebed: no table named 'nothing'")
    error = json.loads(document)
    assert error["error"]["kind"] == "not_found"
    assert error["error"]["table"] == "nothing"
    assert not differences(
        {"error": {k: error["error"][k] for k in ("kind", "code", "message")}}, documented()["error"]
    )


def test_a_mistake_in_the_words_themselves_is_json_too(cli: Cli) -> None:
    ran = cli("scam", "--json")
    assert ran.code == 2
    assert '"kind": "usage"' in ran.err.splitlines()[-1]
