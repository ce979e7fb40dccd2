"""One PostgreSQL for all tests of this folder, and its password where libpq looks for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from lakebed.testing.logs import LogUrl
from tests.postgres.cluster import PASSWORD, Cluster
from tests.waiting import until


@pytest.fixture(scope="session")
def _cluster() -> Iterator[Cluster]:
    cluster = Cluster.make()
    yield cluster
    cluster.remove()


@pytest.fixture
def cluster(_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A running server, and PGPASSWORD in the environment of this process and of its children."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    return _cluster


@pytest.fixture
def location(cluster: Cluster) -> LogUrl:
    """A fresh log that was checked."""
    location = LogUrl(cluster.url())
    location.connect().check()
    return location


@pytest.fixture
def shop(cluster: Cluster) -> Iterator[psycopg.Connection[Any]]:
    """A database of its own, and what follows it is gone after the test."""
    name = f"shop{random.randrange(10**9)}"
    cluster.sql(f"CREATE DATABASE {name}")
    with closing(psycopg.connect(cluster.url(name), password=PASSWORD, autocommit=True)) as connection:
        yield connection
    with closing(psycopg.connect(cluster.url(name), password=PASSWORD, autocommit=True)) as connection:
        active = "SELECT 1 FROM pg_replication_slots WHERE active"
        until(lambda: not connection.execute(active).fetchall())
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    cluster.sql(f"DROP DATABASE {name} WITH (FORCE)")
