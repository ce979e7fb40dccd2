"""The walks of docs/architecture.md are those that the code takes."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed import Pipeline
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")

# What a walk may pass without naming it: values, and what every layer uses.
UNNAMED = {"clock", "errors", "model", "settings", "system", "telemetry", "version"}


def walk(name):
    """The modules of a walk on the page, in order."""
    (steps,) = re.findall(rf"<!-- walk: {name} -->\n(.*?)(?:\n\n|\Z)", PAGE, re.DOTALL)
    return re.findall(r"^\d+\. `(lakebed[\w.]+)`", steps, re.MULTILINE)


def modules_called_by(act):
    """The modules of Lakebed in the order in which a function of each is first called, by this thread or new ones."""
    called = {}

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("lakebed."):
            called.setdefault(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act(called.clear)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(called)


def folders(modules):
    return {name.split(".")[1] for name in modules} - UNNAMED


@pytest.fixture
def lake(tmp_path):
    """An instance on local disk whose table ``t`` has two files of 50 pages."""
    made = lakebed.create(tmp_path / "lake")
    table = made.create_table("t", lakebed.Schema({"k": "string"}, {}, {"v": "string"}))
    for _ in range(2):
        table.write(batch())
    table.get("k000100")
    return made


def batch():
    return pa.table({"k": [f"k{k:06}" for k in range(50_000)], "v": [str(k) for k in range(50_000)]})


def get(lake, begin):
    table = lake.table("t")
    begin()
    table.get("k000101")


def write(lake, begin):
    table, rows = lake.table("t"), batch()
    begin()
    table.write(rows)


def compact(lake, begin):
    table = lake.table("t")
    for _ in range(10):
        table.write(batch())
    with Pipeline(lake, launcher="this-thread") as pipeline:
        begin()
        assert pipeline.compact(table).files_in == 12


def load(lake, begin):
    table = lake.table("t")
    with tempfile.TemporaryDirectory() as folder, Pipeline(lake, launcher="this-thread") as pipeline:
        pq.write_table(batch(), f"{folder}/rows.parquet")
        # The first import also imports modules.
        for _ in range(2):
            begin()
            assert pipeline.bulk_import(table, f"{folder}/rows.parquet").rows == 50_000


def ask(lake, begin):
    with TestClient(make_app(Service(lake, maintain=False))) as client:
        for key in ("k000100", "k000101"):
            begin()
            assert client.get("/v1/tables/t/get", params={"key": key}).text.count(key) == 2


WALKS = {"get": get, "write": write, "import": load, "compaction": compact, "http": ask}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_names_the_modules_that_are_called_in_their_order(name, lake):
    called = modules_called_by(partial(WALKS[name], lake))
    named = walk(name)
    assert named == [module for module in called if module in named]
    assert folders(named) == folders(called)


@pytest.mark.parametrize("name", WALKS)
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
