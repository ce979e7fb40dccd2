"""A program as users write it, which type checkers check and nothing runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

import lakebed
from lakebed import Count, Instance, KeyRange, Latest, Schema, Table


@dataclass
class Reading:
    """A row."""

    device: str
    at: int
    value: float | None


def fill(url: str) -> int:
    """Make an instance with a table."""
    lake = lakebed.create(url, exist_ok=True)
    assert_type(lake, Instance)
    schema = Schema.of(Reading, key="device", sort_key=["at"])
    assert_type(schema, Schema)
    table = lake.create_table("readings", schema, merge=Latest(), if_not_exists=True)
    assert_type(table, Table)
    assert_type(lake["readings"], Table)
    assert_type("readings" in lake, bool)
    assert_type(list(lake), list[str])
    version = table.write([{"device": "d-1", "at": 1, "value": 0.5}], commit_id="first")
    assert_type(version, int)
    return version


def read(url: str) -> float:
    """Read it in all ways."""
    lake = lakebed.open(url)
    assert_type(lake, Instance)
    table = lake.table("readings")
    count = table.count(KeyRange.prefix("d-1"))
    assert_type(count, Count)
    assert_type(count.rows, int)
    with table.scan(KeyRange("d-1", "d-2"), columns=["value"], limit=3) as rows:
        for batch in rows:
            print(batch)
    with lake.sql("SELECT * FROM readings WHERE device = ?", parameters=["d-1"]) as found:
        print(found.to_pandas(), found.schema)
    print(table.at(tag="audited").version, table.explain("d-1").seconds, table.plot_partitions().svg)
    try:
        table.get("d-1", columns=["other"])
    except lakebed.UsageError as error:
        print(error.code, error.message)
    return sum(step.seconds for step in table.explain("d-1").steps)


def through_a_service(url: str) -> list[str]:
    """The same names, of a connected instance."""
    with lakebed.connect(url, token="t") as lake:
        assert_type(lake["readings"].count().rows, int)
        return lake.tables()
