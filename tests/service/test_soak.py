"""Services die at random while others write, submit files and ask: nothing that was acknowledged is lost or doubled."""

from __future__ import annotations

import os

import pytest

from tests.service.soak import soaked


@pytest.mark.slow
def test_killed_services_lose_and_double_nothing(tmp_path):
    happened = soaked(tmp_path, seconds=12, seed=1)
    assert happened["commits of writers and files"] > 0
    assert happened["read"] > 0


@pytest.mark.slow
def test_services_that_are_killed_for_half_an_hour_lose_and_double_nothing(tmp_path):
    happened = soaked(tmp_path, seconds=60 * float(os.environ.get("LAKEBED_SOAK_MINUTES", "30")), seed=2)
    print(*(f"{count:>10,}  {name}" for name, count in happened.items()), sep="\n")
    assert happened["kills of v"] > 10
    assert happened["read"] > 1_000
