"""Processes are killed at random while they write and maintain a table: no acknowledged row is lost or doubled."""

from __future__ import annotations

import pytest

from tests.adversarial.torture import Config, tortured
from tests.postgres.cluster import PASSWORD, Cluster


def test_killed_processes_lose_and_double_nothing_on_local_disk(tmp_path):
    assert tortured(Config(str(tmp_path / "lake"), str(tmp_path)), kills=4, seed=1) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_killed_processes_lose_and_double_nothing_on_local_disk(tmp_path, seed):
    assert tortured(Config(str(tmp_path / "lake"), str(tmp_path)), kills=150, seed=seed) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_processes_lose_and_double_nothing_with_the_log_in_postgresql(tmp_path, monkeypatch, seed):
    """The server crashes now and then as well: acknowledged commits survive."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    cluster = Cluster.make()
    try:
        config = Config(str(tmp_path / "lake"), str(tmp_path), log_url=cluster.url())
        assert tortured(config, kills=100, seed=seed) > 0
    finally:
        cluster.remove()
