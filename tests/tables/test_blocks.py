"""Every block of code on a page is run, parsed or checked; what cannot be is on a short list.

Python runs in the tests that ``RUN_BY`` names, JSON shapes in ``tests/processes/cli/test_json.py``.
"""

from __future__ import annotations

import ast
import datetime as dt
import importlib.metadata
import importlib.util
import json
import re
import shlex
import tomllib
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.declarations import _from_yaml
from lakebed.cli.reference import every_command
from lakebed.files.merging import custom_functions
from lakebed.server.security.audit import AuditLog
from lakebed.upkeep.follow.kafka_source import REGISTRY_URL, read_settings
from tests import pages

RUN_BY = {
    ("docs/apply.md", "yaml"): "tests/processes/test_docs.py",
    ("docs/follow.md", "properties"): "tests/tables/test_blocks.py",
    ("docs/configuration.md", "toml"): "tests/processes/test_docs.py",
    ("docs/instances.md", "toml"): "tests/tables/log/test_plugin.py",
    ("docs/merging.md", "sql"): "tests/tables/test_blocks.py",
    ("docs/merging.md", "toml"): "tests/tables/test_blocks.py",
    ("docs/metrics.md", "yaml"): "tests/tables/test_blocks.py",
    ("docs/open.md", "sql"): "tests/interop/iceberg_lakes.py",  # for tests/engines
    ("docs/spark.md", "sql"): "tests/spark/test_pages.py",
}
ELSEWHERE = {
    "python": "tests/processes/test_docs.py has its own list",
    "json": "tests/processes/test_docs.py parses it, and tests/processes/cli/test_json.py the shapes",
    "text": "not code",
    "sh": "below",
    "bash": "below",
    "": "below, what begins with a command; the rest is not code",
}
IN_A_CLOUD = {"aws", "databricks", "gcloud"}
"""Programs whose commands are parsed only for what they give to Lakebed."""


def shell_lines():
    """The page, the line and the words of every command of a shell that stands in a block."""
    for page in pages.pages():
        for block in pages.blocks(page):
            if block.language in ("sh", "bash", ""):
                for line in pages.shell_lines(block.text):
                    program = line.partition(" ")[0]
                    if block.language or program in PROGRAMS or program in IN_A_CLOUD:
                        yield page, block.line, line


def checks_make(words):
    assert re.search(rf"^{words[1]}:", (pages.ROOT / "Makefile").read_text("utf-8"), re.MULTILINE), words


def checks_python(words):
    """A module or a file that there is."""
    if words[1] == "-m":
        assert importlib.util.find_spec(words[2]) is not None, words
    else:
        assert (pages.ROOT / words[1]).is_file(), words


def checks_pip(words):
    """The extras of Lakebed that a line names."""
    extras = importlib.metadata.metadata("lakebed").get_all("Provides-Extra") or []
    assert words[1] in ("install", "wheel"), words
    for name in re.findall(r"lakebed\[([a-z,]+)\]", " ".join(words)):
        assert set(name.split(",")) <= set(extras), words


PROGRAMS = {
    "make": checks_make,
    "python": checks_python,
    "pip": checks_pip,
    # Parsed by tests/processes/test_docs.py, as what is submitted to Spark.
    "lakebed": None,
    "spark-submit": None,
    # docs/http.md runs in tests/service/test_http_docs.py; that of docs/security.md is below.
    "curl": None,
    "export": None,
    # A file and a server for the lines after it, in the README and in the tutorial.
    "printf": None,
    "moto_server": None,
    # docs/follow.md runs in tests/postgres/test_follow.py.
    "psql": None,
}


def test_every_language_of_a_block_is_checked_by_a_test():
    found = {(page, block.language) for page in pages.pages() for block in pages.blocks(page)}
    assert {one for one in found if one[1] not in ELSEWHERE} == set(RUN_BY)
    assert all(f'"{page}"' in (pages.ROOT / test).read_text("utf-8") for (page, _), test in RUN_BY.items())


def test_every_fence_of_a_page_begins_or_ends_a_block_that_is_found():
    """Those of lists are indented. ``lakebed verify --files``, which there is not, was on a page because of that."""
    for page in pages.pages():
        found = sum(pages.is_fenced(block) for block in pages.blocks(page))
        assert pages.text_of(page).count("```") == 2 * found, page


def test_no_code_is_in_a_block_without_a_language():
    """Nothing would run it. Errors that stand below a statement are no Python, and are checked where they stand."""
    for page in pages.pages():
        for block in pages.blocks(page, ""):
            assert not is_python(block.text), f"{page}:{block.line}: begin the block with ```python"
            assert not re.match(r"(SELECT|CREATE|DESCRIBE) ", block.text), f"{page}:{block.line}: ```sql"


def is_python(text):
    try:
        return bool(ast.parse(text).body)
    except SyntaxError:
        return False


def test_every_shell_command_is_of_a_program_that_is_checked():
    seen = set()
    for page, line, command in shell_lines():
        words = shlex.split(command, comments=True)
        if not words or page == "docs/http.md":
            continue
        program = words[0]
        seen.add(program)
        if re.match(r"[\d*]", program):
            assert pages.parse(cron_arguments(command)) == "maintain", f"{page}:{line}"
            continue
        assert program in PROGRAMS or program in IN_A_CLOUD, f"{page}:{line}: {command}"
        if check := PROGRAMS.get(program):
            check(words)
    assert seen >= IN_A_CLOUD | {"make", "python", "pip", "lakebed", "spark-submit"}, (
        "the list is not longer than need be"
    )


def cron_arguments(line):
    """What a line of a crontab gives to Lakebed."""
    words = shlex.split(line)
    assert all(re.fullmatch(r"[\d*/,-]+", field) for field in words[:5]), line
    place = max(place for place, word in enumerate(words) if re.fullmatch(r"(.*/bin/)?lakebed", word))
    rest = words[place + 1 :]
    return rest[: rest.index(">>")] if ">>" in rest else rest


def test_the_lines_for_cron_are_commands():
    found = [
        line
        for block in pages.blocks("docs/scheduling.md")
        for line in block.text.splitlines()
        if line.startswith("*/")
    ]
    assert [pages.parse(cron_arguments(line)) for line in found] == ["maintain"]
    with pytest.raises(AssertionError):
        cron_arguments("*/5 * * lakebed maintain --all")


# -- YAML, TOML and SQL -------------------------------------------------------------------------------------------


def test_the_yaml_for_prometheus_is_a_configuration_of_its_port():
    (block,) = pages.blocks("docs/metrics.md", "yaml")
    document, _ = _from_yaml(Path("prometheus.yml"), block.text)
    (job,) = document["scrape_configs"]
    assert set(job) == {"job_name", "authorization", "static_configs"}
    (serve,) = (command for command, context in every_command() if context.command_path == "lakebed serve")
    (port,) = (one.default for one in serve.params if one.name == "port")
    assert job["static_configs"][0]["targets"][0].endswith(f":{port}")


def test_the_settings_of_a_client_of_kafka_are_read(tmp_path):
    (block,) = pages.blocks("docs/follow.md", "properties")
    (tmp_path / "client.properties").write_text(block.text)
    found = read_settings(str(tmp_path / "client.properties"))
    assert len(found) == len(block.text.splitlines())
    assert found["security.protocol"] == "SASL_SSL"
    assert REGISTRY_URL in found


def test_the_entry_points_of_the_page_on_merging_are_found_by_name_and_version(tmp_path, monkeypatch):
    """As a package that is installed here: the metadata of the page, and a module with what it names."""
    (block,) = pages.blocks("docs/merging.md", "toml")
    ((group, points),) = tomllib.loads(block.text)["project"]["entry-points"].items()
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (function,) = [one for one in pages.blocks("docs/merging.md", "python") if "def highest" in one.text]
    source = function.text + "\n\nhighest_with_game = highest\n"
    (tmp_path / "my_package" / "functions.py").write_text(f"import pyarrow as pa\n\n\n{source}", "utf-8")
    metadata = tmp_path / "my_package-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n", "utf-8")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{lines}", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    custom_functions.installed.cache_clear()
    try:
        assert [custom_functions.installed("highest", version).name for version in (1, 2)] == [
            "'highest'",
            "'highest.2'",
        ]
    finally:
        custom_functions.installed.cache_clear()


def test_the_statement_of_the_page_on_merging_gives_what_stands_below_it():
    pytest.importorskip("datasketches")
    names = {"lakebed": lakebed, "pa": pa, "dt": dt} | {name: getattr(lakebed, name) for name in lakebed.__all__}
    names["lake"] = lakebed.create(f"memory://{uuid.uuid4().hex}")
    (made,) = [one for one in pages.blocks("docs/merging.md", "python") if "quantiles_column" in one.text]
    pages.run(made, names)
    (block,) = pages.blocks("docs/merging.md", "sql")
    statement, _, below = block.text.partition("\n-- ")
    expected = eval(below, {"datetime": dt})
    assert names["lake"].sql(statement).read_all().to_pylist() == expected


def test_the_line_of_the_audit_log_is_one_that_is_written(tmp_path):
    (block,) = pages.blocks("docs/security.md", "json")
    shown = json.loads(block.text)
    log = AuditLog(str(tmp_path / "audit.log"))
    parameters = {"bytes": "size_bytes", "protocol": "interface"}
    log.record(**{parameters.get(name, name): value for name, value in shown.items() if name != "time"})
    log.close()
    written = json.loads((tmp_path / "audit.log").read_text("utf-8"))
    assert list(written) == list(shown)
    assert {**written, "time": shown["time"]} == shown
