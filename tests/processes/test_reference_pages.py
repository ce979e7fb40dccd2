"""The reference pages have what there is, and nothing else: settings, HTTP operations, tests of promises, benchmarks,
public names, kinds of errors.

Others: commands in tests/processes/cli/test_reference.py, their JSON in tests/processes/cli/test_json.py, metrics in
tests/pure/monitoring/test_metrics_page.py, error codes in tests/processes/test_docs.py.
"""

from __future__ import annotations

import importlib
import re
import shlex

import pytest
from litestar.handlers import HTTPRouteHandler

from benchmarks.__main__ import NAMES, WITH_PEERS
from lakebed.cli.reference import every_command
from lakebed.errors import Code
from lakebed.model import settings
from lakebed.model.wording import count_text, size_text
from lakebed.server.web.api.descriptions import ERRORS
from lakebed.server.web.app import API, routes_in
from lakebed.server.web.error_answers import status_of
from tests import pages

# -- settings -----------------------------------------------------------------------------------------------------


def amount(value, unit):
    """A value of a setting as the page has it."""
    if unit == "name":
        return f"`{value}`"
    if unit == "columns":
        return value or "none"
    if unit == "bytes":
        return f"{value} bytes" if value < settings.KIB else size_text(value).replace(".0 ", " ")
    if unit == "seconds":
        for name, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
            if value and value % seconds == 0:
                return count_text(value // seconds, name)
        return f"{value:,} s"
    return f"{value:,}" if isinstance(value, int) else f"{value:.9f}".rstrip("0").rstrip(".")


def row_of(setting):
    if setting.choices:
        allowed = ", ".join(f"`{choice}`" for choice in setting.choices)
    elif setting.minimum is None:
        allowed = "names of columns, `*`"
    else:
        allowed = f"{amount(setting.minimum, setting.unit)} to {amount(setting.maximum, setting.unit)}"
    return f"| `{setting.name}` | {amount(setting.default, setting.unit)} | {allowed} |"


def test_the_page_on_settings_has_each_with_its_default_and_bounds():
    rows = re.findall(r"^\| `\w+` \|[^|]+\|[^|]+\|[^|]+\|$", pages.text_of("docs/settings.md"), re.MULTILINE)
    assert [row for row, of in zip(rows, settings.describe(), strict=True) if not row.startswith(row_of(of))] == []


# -- HTTP ---------------------------------------------------------------------------------------------------------

OF_LAKEBED = {"POST /v1/catalog/commits", "POST /v1/tables/{table_id}/commits"}
"""For programs of Lakebed alone (docs/commit-via.md)."""


def operations():
    """Each operation of the API, as ``GET /v1/tables/{table}``."""
    for handler in routes_in(*API):
        assert isinstance(handler, HTTPRouteHandler)
        for path in handler.paths:
            for method in handler.http_methods:
                yield f"{method} {re.sub(r':[a-z]+}', '}', path)}"


def request_of(command):
    """The method and the path of a command of curl, as curl takes them."""
    words = shlex.split(command)
    (url,) = (word for word in words if word.startswith("$URL/"))
    sends = any(word in ("--json", "-d", "--data-binary") for word in words) and "-G" not in words
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if sends else "GET"
    return method, url.removeprefix("$URL").partition("?")[0]


def commands():
    for block in pages.blocks("docs/http.md", "bash"):
        for line in pages.shell_lines(block.text):
            yield line.removeprefix("ID=$(").replace("$'", "'").partition(" | ")[0]


def test_the_page_on_http_has_an_example_of_each_operation_and_of_no_other():
    """They run in tests/service/test_http_docs.py; jobs have none there, so they are named in the text."""
    patterns = {one: re.compile(re.sub(r"\\{[a-z_]+\\}", r"[^/]+", re.escape(one))) for one in operations()}
    shown = set()
    for command in commands():
        method, path = request_of(command)
        # The longest: /v1/tables/x is not one with {table} if another path is meant.
        found = [one for one, pattern in patterns.items() if pattern.fullmatch(f"{method} {path}")]
        assert found, f"no operation of the API: {command}"
        shown.update(found)
    prose = pages.text_of("docs/http.md") + pages.text_of("docs/metrics.md")
    named = {one for one in patterns if re.search(re.sub(r"\\{[a-z_]+\\}", "ID", re.escape(one)), prose)}
    missing = set(patterns) - shown - named - OF_LAKEBED - {"GET /metrics"}
    assert not missing
    assert "`/metrics`" in prose


# -- promises and benchmarks --------------------------------------------------------------------------------------


def names_of_tests(path):
    """The names of the tests in a file."""
    return set(re.findall(r"^(?:async )?def (test_\w+)", (pages.ROOT / path).read_text("utf-8"), re.MULTILINE))


def test_each_promise_of_the_readme_names_tests_that_exist():
    page = pages.text_of("docs/promises.md")
    promised = pages.text_of("README.md").partition("\n## What it promises\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\* \*\*(.+?)\.\*\*", promised, re.MULTILINE) == re.findall(
        r"^\| \*\*(.+?)\*\*", page, re.MULTILINE
    )
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.endswith("| held by |")]
    assert [row for row in rows if "::" not in row and "no test: " not in row] == []
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", page)
    assert page.count("::") == len(named) > 25
    assert [f"{path}::{name}" for path, name in named if name not in names_of_tests(path)] == []
    makefile = (pages.ROOT / "Makefile").read_text("utf-8")
    apart = re.search(r"^TESTS := \$\(filter-out (.+),\$\(wildcard", makefile, re.MULTILINE)
    assert apart is not None
    of_other_commands = [row for row in rows if any(f"`{folder}" in row for folder in apart[1].split())]
    assert [row for row in of_other_commands if "`make " not in row] == []


def test_the_page_on_benchmarks_has_each_of_them():
    rows = re.findall(r"^\| `(\w+)` \|", pages.text_of("docs/benchmarks.md"), re.MULTILINE)
    assert len(set(rows)) == len(rows)
    # By name alone: they need a folder, or another checkout.
    assert set(rows) == {*NAMES, *WITH_PEERS, "billion", "compare"}
    last = len(WITH_PEERS) + 2
    assert not set(rows[-last:]) & set(NAMES), f"`make bench` runs all but the last {last}"


# -- names and kinds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)$", pages.text_of("docs/api.md"), re.MULTILINE))
def test_every_name_of_the_api_reference_exists(name):
    """The module, then the rest of the path in it; `make docs` says so too, after a minute."""
    module, _, attribute = name.rpartition(".")
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        found = getattr(importlib.import_module(module), attribute)
    assert found.__doc__


def test_the_page_on_json_lists_every_kind_of_error():
    listed = pages.text_of("docs/cli-json.md").partition("\nKinds: ")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == {code.group for code in Code}


def test_the_page_on_http_has_every_status_of_an_error():
    section = pages.text_of("docs/http.md").partition("\n## Errors\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([\d, ]+) \|", section, re.MULTILINE)
    listed = {int(status) for row in rows for status in row.split(",")}
    # That of a path without the method is made by the framework, for every operation.
    assert listed == {*ERRORS, 405}
    assert {status_of(code("")) for code in Code} <= listed


def test_the_page_on_architecture_has_a_section_of_each_folder_and_only_modules_that_exist():
    source = pages.ROOT / "src" / "lakebed"
    folders = {path.parent.name for path in source.glob("*/__init__.py")}
    modules = {path.stem for path in source.rglob("*.py")} | {path.parent.name for path in source.rglob("__init__.py")}
    text = pages.text_of("docs/architecture.md").partition("\n## The layers\n")[2].partition("\n## ")[0]
    sections = {part.partition("\n")[0]: part for part in text.split("\n### ")[1:]}
    assert set(sections) == folders
    for name, part in sections.items():
        named = {word.removeprefix("lakebed.").split(".")[0] for word in re.findall(r"`([a-z_][a-z_.]*)`", part)}
        assert not named - modules, name


OF_OTHERS = {"--preload", "--application", "--help", "--deploy-mode", "--archives", "--packages", "--py-files"}
"""Of ``spark-submit``, and of ``lakebed`` itself without a command."""


@pytest.mark.parametrize(
    "page", [page for page in pages.pages() if "performance" not in page and page != "docs/cli.md"]
)
def test_every_option_that_a_page_names_is_one_of_a_command(page):
    """In running text, with its command or without; commands of benchmarks, as the pages on performance have, apart."""
    options = {
        name for command, _ in every_command() for one in command.params for name in (*one.opts, *one.secondary_opts)
    }
    prose = re.sub(r"^ *```.*?^ *```$", "", pages.text_of(page), flags=re.MULTILINE | re.DOTALL)
    codes = [code for code in re.findall(r"`[^`\n]*`", prose) if not code.startswith("`python -m benchmarks.")]
    named = {name for code in codes for name in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)}
    assert not named - options - OF_OTHERS


def test_the_environment_variables_of_the_code_are_on_pages_and_no_others():
    variable = re.compile(r"\bLAKEBED_[A-Z_]+\b")
    source = "".join(path.read_text("utf-8") for path in sorted((pages.ROOT / "src").rglob("*.py")))
    shown = "".join(map(pages.text_of, pages.pages()))
    assert set(variable.findall(source)) - set(Code.__members__) == set(variable.findall(shown))
