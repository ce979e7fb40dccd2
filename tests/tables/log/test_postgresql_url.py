"""URLs of PostgreSQL, before anything is connected: no password may be written down, or shown."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.errors import StorageError, UsageError
from lakebed.log.locations import connect_logs
from lakebed.storage import connect

SECRET = "s3kr1t"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"postgresql://:{SECRET}@host/db",
        f"postgresql://me:{SECRET}@@host/db",
        f"postgresql://me:{SECRET}@host1,host2/db",
        f"postgresql://host/db?password={SECRET}",
        f"postgresql://host/db?user=me&PASSWORD={SECRET}",
        f"postgresql://host/db?sslpassword={SECRET}",
        f"postgresql://me:{SECRET}/{SECRET}@host/db",
        f"postgresql://me:{SECRET}#{SECRET}@host/db",
        f"postgresql://host:{SECRET}/db",
    ],
)
def test_a_password_is_refused_and_not_shown(tmp_path, url):
    with pytest.raises(UsageError) as refused:
        lakebed.create(str(tmp_path / "lake"), log_url=url)
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(refused.value.facts)
    assert not (tmp_path / "lake/instance.json").exists()


@pytest.mark.parametrize("url", ["postgresql://me:x@host/db", "postgresql://host/db?password=x"])
def test_the_refusal_says_where_a_password_belongs(url):
    with pytest.raises(UsageError, match=r"PGPASSWORD, ~/\.pgpass or a service file"):
        connect_logs(url, connect("memory://unused"), "instance-0")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql:///db",
        "postgresql://host",
        "postgresql://me@host:5432/db?sslmode=require",
        "postgresql://me@/db?host=/var/run/postgresql",
        "postgresql://host1:5432,host2:5433/db",
        "postgresql://[::1]:5432/db",
        "postgresql://me%40corp@host/db",
        "postgresql://?service=lake",
    ],
)
def test_what_libpq_understands_is_taken(url):
    assert url in repr(connect_logs(url, connect("memory://unused"), "instance-0"))


@pytest.mark.parametrize(
    ("url", "transient", "says"),
    [
        ("postgresql://localhost/db?nonsense=1", False, "option that is not known"),
        ("postgresql://?service=nowhere", False, "service is not defined"),
        ("postgresql://127.0.0.1:1/db", True, "try again later"),
        ("postgresql://nowhere.invalid/db", True, "try again later"),
    ],
)
def test_a_server_that_cannot_be_reached_is_said(url, transient, says):
    """Before any entry is under way."""
    log = connect_logs(url, connect("memory://unused"), "instance-0").open("catalog")
    with pytest.raises(StorageError, match=says) as failure:
        log.create(1, b"x")
    assert failure.value.transient is transient
