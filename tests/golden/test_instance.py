"""A stored instance is read correctly, and would be written again in the same shape.

The golden files beside this module are made by ``python -m tests.golden.make``. They change only together with
docs/format.md, which contains their digest.
"""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

import lakebed
from lakebed import Pipeline
from lakebed.clock import random_token
from lakebed.model.documents import FEATURES
from lakebed.model.merge_modes import FUNCTIONS, MODES
from lakebed.model.row_kinds import KIND
from lakebed.model.settings import NAMES
from lakebed.model.state.catalog import CatalogChange
from lakebed.model.state.transactions import StoredTransaction
from lakebed.model.type_names import PLAIN
from lakebed.model.types import HIDDEN_PREFIX
from tests.golden import make
from tests.golden.listing import listing

FORMAT = Path(__file__).parents[2] / "docs" / "format.md"


def recorded(name):
    return (make.FOLDER / name).read_text()


@pytest.fixture
def root(tmp_path):
    return make.extract(make.FOLDER / make.ARCHIVE, tmp_path / "golden")


def test_every_stored_object_is_read_as_it_was_meant(root):
    """Rows, history, versions, requests, failures, settings, partitions; and verification finds nothing."""
    assert json.loads(make.answers_of(root)) == json.loads(recorded(make.ANSWERS))


def test_an_export_is_attached_as_it_is(root):
    lake = lakebed.open(str(root / "lake"))
    table = lake.create_table("again", lake.table("events").schema)
    with Pipeline(lake, launcher="in-process") as pipeline:
        pipeline.attach(table, str(root / "export-parquet"))
    assert table.to_arrow() == lake.table("attached").to_arrow()
    assert table.verify(files=True, deep=True).sound


def test_the_listing_is_that_of_the_objects(root):
    assert listing(root) == recorded(make.LISTING)


def test_the_same_calls_write_objects_of_the_same_shape(tmp_path):
    """Fields of JSON, columns and metadata of Parquet and Arrow, names of objects: any changed stored word is
    detected.
    """
    # The name of the folder is stored in entries, and their length determines when a checkpoint is written.
    root = make.CURRENT.with_name(f"lakebed-{random_token()[:6]}")
    assert len(str(root)) == len(str(make.CURRENT))
    make.build(root, tmp_path / "instance.tar")
    assert listing(make.extract(tmp_path / "instance.tar", tmp_path / "again")) == recorded(make.LISTING)


def test_the_instance_has_everything_that_an_instance_can_have(root):
    """Every registry is compared with what is stored: what is added to one has to be added to the instance as well."""
    lines = [json.loads(line) for path in root.glob("lake/**/*.*json") for line in path.read_text().splitlines()]
    held = list(members(lines))
    stored = defaultdict(set)
    for name, value in held:
        if isinstance(value, str):
            stored[name].add(value)
    transactions = (*get_args(StoredTransaction), *get_args(CatalogChange))
    assert {str(one.__struct_config__.tag) for one in transactions} <= stored["type"]
    assert MODES.keys() <= stored["mode"]
    assert stored["by"] == {"arrival", "sort_key"}
    assert FUNCTIONS.keys() <= {value for key, value in held if key.startswith("v ")}
    settings = [value for key, value in held if key in ("settings", "changes") and isinstance(value, dict)]
    assert {name for one in settings for name in one} >= set(NAMES)
    assert {feature for key, value in held if key == "features" for feature in value} == set(FEATURES)
    assert {base(name) for name in PLAIN} <= {base(name) for name in stored["type"]}
    columns = recorded(make.LISTING)
    assert f" {KIND} " in columns
    assert f" {HIDDEN_PREFIX}has_" in columns


def members(value):
    """Every name and value of the JSON objects within a value."""
    pairs = value.items() if isinstance(value, dict) else [("", item) for item in value]
    for name, item in pairs:
        yield name, item
        if isinstance(item, dict | list):
            yield from members(item)


def base(name):
    """The name of a type without its unit."""
    return re.split(r"[\[(]", name)[0]


def test_the_instance_has_every_object_that_the_specification_names(root):
    text = FORMAT.read_text().partition("## 1. Objects")[2].partition("\n\n`<version>`")[0]
    names = [
        name for line in text.splitlines() for name in re.findall("`([a-z-]+[./][^`]*)`", line.partition(" | ")[0])
    ]
    # Only a follower of a database makes its record: tests/postgres/test_follow.py.
    names.remove("follows/<name>.json")
    found = [path.relative_to(root / "lake").as_posix() for path in root.glob("lake/**/*") if path.is_file()]
    assert len(names) > 15
    for name in names:
        pattern = re.sub(r"<[a-z ]+>|\b(ID|NAME)\b", "[^/]+", name.replace(".", r"\.")).replace("…", ".+")
        assert any(re.fullmatch(pattern, one) for one in found), name


def test_golden_files_change_only_together_with_the_specification():
    assert f"`{make.digest()}`" in FORMAT.read_text(), (
        "the golden files are not those that docs/format.md names: take the change back, or say in docs/format.md what "
        "changed, run python -m tests.golden.make, and write the digest that it prints there"
    )
