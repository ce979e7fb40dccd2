"""The walks of docs/architecture.md are those that the code takes."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

# What a walk may pass without naming it: values, and what every layer uses.
UNNAMED = {"clock", "errors", "model", "settings", "telemetry", "version"}


def walk(name):
    """The modules of a walk on the page, in order."""
    (steps,) = re.findall(rf"<!-- walk: {name} -->\n(.*?)(?:\n\n|\Z)", PAGE, re.DOTALL)
    return re.findall(r"^\d+\. `(lakebed[\w.]+)`", steps, re.MULTILINE)


def modules_called_by(act):
    """The modules of Lakebed in the order in which this thread first calls a function of each."""
    called = {}

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("lakebed."):
            called.setdefault(name)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return list(called)


def folders(modules):
    return {name.split(".")[1] for name in modules} - UNNAMED


@pytest.fixture
def table(tmp_path):
    """A table with two files of 50 pages on local disk."""
    made = lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "string"}, {}, {"v": "string"}))
    for _ in range(2):
        made.write(batch())
    made.get("k000100")
    return made


def batch():
    return pa.table({"k": [f"k{k:06}" for k in range(50_000)], "v": [str(k) for k in range(50_000)]})


@pytest.mark.parametrize("name", ["get", "write"])
def test_a_walk_names_the_modules_that_are_called_in_their_order(name, table):
    rows = batch()
    called = modules_called_by({"get": lambda: table.get("k000101"), "write": lambda: table.write(rows)}[name])
    named = walk(name)
    assert named == [module for module in called if module in named]
    assert folders(named) == folders(called)


@pytest.mark.parametrize("name", ["get", "write", "import"])
def test_a_walk_names_modules_that_exist_and_none_twice(name):
    named = walk(name)
    assert len(named) > 10
    assert len(set(named)) == len(named)
    assert not [module for module in named if find_spec(module) is None]


def sections():
    """The text of the section of each folder."""
    layers = PAGE.partition("## The layers")[2].partition("\n## ")[0]
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", layers, re.MULTILINE | re.DOTALL))


def test_the_page_has_a_section_for_each_folder():
    there = {path.parent.name for path in (ROOT / "src" / "lakebed").glob("*/__init__.py")}
    assert set(sections()) == there


@pytest.mark.parametrize("folder", sections())
def test_a_section_names_modules_of_its_folder(folder):
    there = {path.stem for path in (ROOT / "src" / "lakebed" / folder).rglob("*")}
    assert not set(re.findall(r"`([a-z_]+)`", sections()[folder])) - there
