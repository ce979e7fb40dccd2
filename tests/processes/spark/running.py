"""A task of a test that says how many run at the same time."""

from __future__ import annotations

from pathlib import Path

from tests.waiting import until


def count(folder: str, number: int, expected: int) -> int:
    """How many tasks run, this one among them. The first ones wait until as many as are expected run together."""
    mark, together = Path(folder, f"running-{number}"), Path(folder, "together")
    mark.touch()
    until(lambda: together.exists() or len(list(Path(folder).glob("running-*"))) >= expected)
    seen = len(list(Path(folder).glob("running-*")))
    together.touch()
    mark.unlink()
    return seen
