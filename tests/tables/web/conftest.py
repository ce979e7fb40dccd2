"""A service over an instance in memory, and a client of its web application."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.table.instance import Instance

BROWSER = {"accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"}


@pytest.fixture
def stations(lake: Instance) -> lakebed.Table:
    """A table of three partitions with two runs and keys of text."""
    schema = lakebed.Schema({"id": "string"}, {"at": "int64"}, {"reading": "float64"})
    table = lake.create_table("stations", schema, split_points=["g", "p"])
    for at in (1, 2):
        ids = ["alpha", "gamma", "omega"]
        table.write(pa.table({"id": ids, "at": [at] * 3, "reading": [0.5, None, 2.5]}))
    return table


@pytest.fixture
def browser(lake: Instance) -> Iterator[TestClient]:
    """What asks for pages as a browser does."""
    # A service that was not started looks at the tables whenever it is asked for its status.
    with TestClient(make_app(Service(lake, maintain=False))) as client:
        client.headers.update(BROWSER)
        yield client
