"""Services in this process share the workers of their tasks, each of which takes half a second to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workers import shared_workers


@pytest.fixture(autouse=True, scope="package")
def _workers() -> Iterator[None]:
    with shared_workers():
        yield
