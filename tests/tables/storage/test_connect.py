"""From a URL and options to a store, and what is refused before anything is asked of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import UsageError
from lakebed.storage import Locality, LocalStorage, connect
from lakebed.storage.contract import check_name

KEYS = {"aws_access_key_id": "k", "aws_secret_access_key": "SECRETSECRET", "aws_region": "eu-north-1"}


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert connect("lake").url == f"file://{tmp_path}/lake"
    assert connect(f"file://{tmp_path}/lake/").url == f"file://{tmp_path}/lake"
    assert isinstance(connect(tmp_path), LocalStorage)


def test_an_object_stores_url_has_no_trailing_slash() -> None:
    storage = connect("s3://bucket/some/prefix/", KEYS)
    assert (storage.url, storage.locality, storage.folder) == ("s3://bucket/some/prefix", Locality.REMOTE, None)
    assert storage.object_url("a/b") == "s3://bucket/some/prefix/a/b"
    assert connect("s3a://bucket", KEYS).url == "s3://bucket"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://user:hush@bucket/a", "must not contain credentials"),
        ("s3://user@bucket/a", "must not contain credentials"),
        ("ftp://host/a", "unknown scheme ftp"),
        ("https://bucket.s3.amazonaws.com/a", "unknown scheme https"),
        ("s3:///a", "needs a bucket"),
        ("memory://", "needs a name"),
        ("file://host/a", "names a host"),
        ("s3://bucket/a?versionId=1", "no query"),
        ("s3://bucket/a#b", "no fragment"),
        ("s3://bucket/../a", "unsafe"),
        ("", "not a path"),
    ],
)
def test_a_url_that_means_nothing_is_refused(url: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        connect(url, KEYS if url.startswith("s3") else None)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://b", "gs://b", "az://b"])
def test_an_unknown_option_is_refused_by_name(url: str) -> None:
    with pytest.raises(UsageError, match="'colour'"):
        connect(url, {"colour": "blue"})


def test_an_option_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="'timeout' must be a string"):
        connect("s3://b", {"timeout": 5})  # type: ignore[dict-item]


@pytest.mark.parametrize("url", ["/tmp/x", "memory://x"])
def test_options_mean_nothing_where_there_is_no_server(url: str) -> None:
    with pytest.raises(UsageError, match="'aws_region' is not supported"):
        connect(url, {"aws_region": "r"})


def test_no_repr_shows_a_secret() -> None:
    storage = connect("s3://bucket", KEYS)
    assert "SECRET" not in repr(storage) + repr(vars(storage))


def test_options_are_taken_in_either_case_and_with_or_without_prefix() -> None:
    upper = connect("s3://b", {"AWS_ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "TIMEOUT": "5s"})
    assert upper.url == "s3://b"


@pytest.mark.parametrize("name", ["a", "a/b", "t/log/00000000000000000001.ndjson", "0f-1e/year=2024/.hidden", "a..b"])
def test_a_plain_name_is_safe(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("url", "name", "meant"), [("s3://b", "regin", "region"), ("gs://b", "service_acount", "service_account")]
)
def test_an_unknown_option_is_refused_with_the_one_that_is_like_it(url: str, name: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"option '{name}' is not supported for .*; did you mean '{meant}'") as caught:
        connect(url, {name: "x"})
    assert "`lakebed docs storage`" in caught.value.message
