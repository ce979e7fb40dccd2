"""One PostgreSQL for all tests of this folder, and its password where libpq looks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakebed.testing.logs import LogUrl
from tests.postgres.cluster import PASSWORD, Cluster


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
