"""An instance with tables, and a gateway to it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import lakebed
from lakebed.table.instance import Instance
from tests.processes.gateway.opened import Gateway, opened


@pytest.fixture
def flights(lake: Instance) -> lakebed.Table:
    """A table of two partitions with three files, one of them in both, at version 4."""
    schema = lakebed.Schema({"tail": "string"}, {"at": "int64"}, {"delay": "float64", "crew": "string"})
    table = lake.create_table("flights", schema, split_points=["m"])
    for at, tails in enumerate((["a", "b", "z"], ["a", "c"], ["n", "x"])):
        columns = {"tail": tails, "at": [at] * len(tails), "delay": [0.5] * len(tails), "crew": ["ann"] * len(tails)}
        table.write(pa.table(columns))
    return table


@pytest.fixture
def gateway(lake: Instance) -> Iterator[Gateway]:
    """A gateway to the instance."""
    with opened(lake) as running:
        yield running
