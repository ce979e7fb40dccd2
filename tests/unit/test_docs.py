"""The documentation names what there is, and its code runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
import lakebed.spark
from lakebed.cli.run import exit_code
from lakebed.errors import Code, Error
from lakebed.snapshot.snapshot import Readable, Snapshot

DOCS = Path(__file__).parents[2] / "docs"
PAGE_JSON = (DOCS / "cli-json.md").read_text("utf-8")


def error_classes(of=Error):
    return [of, *(below for cls in of.__subclasses__() for below in error_classes(cls))]


def public_error_classes():
    return [cls for cls in error_classes() if cls.__module__ == "lakebed.errors"]


def test_the_api_reference_has_every_public_name():
    page = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE)
    public = [f"lakebed.{name}" for name in lakebed.__all__]
    public += [f"lakebed.spark.{name}" for name in lakebed.spark.__all__]
    assert not set(public) - set(page)
    assert len(set(page)) == len(page)


@pytest.mark.parametrize("cls", [lakebed.Table, Snapshot])
def test_every_read_of_tables_and_snapshots_is_declared_once_and_shown_for_both(cls):
    reads = {name for name, value in vars(Readable).items() if callable(value) and not name.startswith("_")}
    assert {"get", "scan", "count", "explain", "to_arrow", "files"} <= reads
    assert all(inspect.getdoc(getattr(cls, name)) for name in reads)
    assert [name for name in reads if getattr(cls, name) is not getattr(Readable, name)] == ["snapshot"]


@pytest.mark.parametrize("cls", public_error_classes(), ids=lambda cls: cls.__name__)
def test_the_error_reference_has_the_kind_the_exit_code_and_the_codes_of(cls):
    page = (DOCS / "errors.md").read_text("utf-8")
    name = cls.__name__
    codes = [code for code in Code if code.group == cls.kind]
    row = f"| [`{name}`](#{name.lower()}) | `{cls.kind}` | {exit_code(codes[0](''))} |"
    assert row in page
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert "**What happened.**" in section
    assert "**What to do.**" in section
    assert re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section, re.MULTILINE) == codes


def test_the_error_reference_has_no_class_that_is_gone():
    page = (DOCS / "errors.md").read_text("utf-8")
    assert set(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == {cls.__name__ for cls in public_error_classes()}


def test_the_code_of_the_page_on_instances_gives_what_stands_beside_it():
    names = {"lakebed": lakebed, "pa": pa, "Schema": lakebed.Schema}
    compared = 0
    for block in re.findall(r"```python\n(.*?)```", (DOCS / "instances.md").read_text("utf-8"), re.DOTALL):
        for line in block.splitlines():
            code, _, wanted = line.partition("  # ")
            if re.fullmatch(r"\d+|True", wanted):
                assert str(eval(code, names)) == wanted, code
                compared += 1
            else:
                exec(code, names)
    assert compared == 6


def test_the_kinds_of_findings_are_those_that_a_verification_reports():
    tables = re.findall(r"^\| kind \| damage .*?\n\n|^\| kind \| damage .*\Z", PAGE_JSON, re.MULTILINE | re.DOTALL)
    rows = [line.split("|")[1] for table in tables for line in table.strip().splitlines()[2:]]
    kinds = {kind for row in rows for kind in re.findall(r"`(\w+)`", row)}
    source = "".join(path.read_text("utf-8") for path in (DOCS.parent / "src" / "lakebed" / "inspect").glob("*.py"))
    classes = {cls.kind for cls in public_error_classes()}
    assert len(kinds) > 25
    assert not {kind for kind in kinds if f'"{kind}"' not in source and kind not in classes}
