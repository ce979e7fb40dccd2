"""A stored instance is read correctly, and would be written again in the same shape.

The golden files beside this module are made by ``python -m tests.golden.make``. They change only together with
docs/format.md, which contains their digest.
"""

import json
from pathlib import Path

import pytest

import lakebed
from lakebed import Pipeline
from lakebed.clock import random_token
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
    make.build(root, tmp_path / make.ARCHIVE)
    assert listing(make.extract(tmp_path / make.ARCHIVE, tmp_path / "again")) == recorded(make.LISTING)


def test_golden_files_change_only_together_with_the_specification():
    assert f"`{make.digest()}`" in FORMAT.read_text(), (
        "the golden files are not those that docs/format.md names: take the change back, or say in docs/format.md what "
        "changed, run python -m tests.golden.make, and write the digest that it prints there"
    )
