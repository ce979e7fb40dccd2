"""Every way to evaluate a predicate over a table, each of which must find the rows for which it is true."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import KeepAll, Latest, Schema, SetFilter
from lakebed.clock import random_token
from lakebed.engine.predicate import check_where, is_true
from lakebed.files.parquet.layout import Layout
from lakebed.log.backends.objects import ObjectLogs
from lakebed.model.policies import Policy
from lakebed.table.restricted_table import RestrictedTable
from lakebed.table.table import Table
from tests.adversarial.random_predicates.kinds import KINDS, Kind
from tests.adversarial.random_predicates.predicates import Truth
from tests.adversarial.random_predicates.terms import Row
from tests.tables.cases import rewritten
from tests.tables.read.merging_tables import reading_by

ROWS = 36
PAGE_ROWS = 2


@dataclass
class Opened:
    """A table by one kind of key in several files, its rows, and the same rows in memory."""

    lake: lakebed.Instance
    table: Any
    rows: list[Row]
    batch: pa.RecordBatch
    deletes: bool


class SmallPages(Table):
    """A table that writes pages of a few rows, whose minima and maxima exclude some predicates."""

    def layout(self) -> Layout:
        return replace(super().layout(), page_rows=PAGE_ROWS)


def opened(chance: Random, key: Kind) -> Opened:
    """Return a new table of random rows, sorted by a column of this kind and a number."""
    rows: list[Row] = []
    for number in range(ROWS):
        row = {kind.name: chance.choice((*kind.contents, None)) for kind in KINDS}
        row[key.name] = chance.choice(key.contents)
        rows.append({**row, "n": number})
    others = {kind.name: kind.arrow for kind in KINDS if kind is not key}
    schema = Schema({key.name: key.arrow, "n": "int64"}, values={**others, "mark": "bool"})
    lake = lakebed.create(f"memory://{random_token()}")
    deletes = chance.random() < 0.5
    table = lake.create_table("t", schema, merge=Latest() if deletes else KeepAll())
    columns = {kind.name: kind.array([row[kind.name] for row in rows]) for kind in KINDS}
    whole = pa.table({**columns, "n": range(ROWS), "mark": [False] * ROWS}).select(schema.names)
    writer = SmallPages(table.id, table.name, table.storage, ObjectLogs(table.storage), dict)
    for first in range(0, ROWS, 12):
        writer.write(whole.slice(first, 12))
    return Opened(lake, table, rows, whole.combine_chunks().to_batches()[0], deletes)


Way = Callable[[Opened, str, list[Truth]], None]


def passing(truths: list[Truth]) -> list[int]:
    """Return the rows that pass."""
    return [number for number, truth in enumerate(truths) if truth]


def _sorted(rows: Any) -> list[int]:
    return sorted(rows.read_all().column("n").to_pylist())


def projection(at: Opened, sql: str, truths: list[Truth]) -> None:
    """The predicate over rows in memory: null where it is null."""
    found = is_true(at.batch, check_where(sql, at.table.schema.arrow)).to_pylist()
    assert found == truths, (found, truths)


def scan(at: Opened, sql: str, truths: list[Truth]) -> None:
    """A scan, of all columns or of one."""
    assert _sorted(at.table.scan(where=sql, columns=["n"])) == passing(truths)


def narrowed_scan(at: Opened, sql: str, truths: list[Truth]) -> None:
    """A scan of the key ranges in which rows may pass by the bounds of columns, in three ways."""
    for way in ("pages", "engine", "slices"):
        with reading_by(at.table, way):
            assert _sorted(at.table.scan(where=sql, columns=["n"])) == passing(truths), way


def statement(at: Opened, sql: str, truths: list[Truth]) -> None:
    """A statement in SQL."""
    assert _sorted(at.lake.sql(f"SELECT n FROM t WHERE {sql}")) == passing(truths)


def statement_over_files(at: Opened, sql: str, truths: list[Truth]) -> None:
    """A statement for which the engine reads the files, and prunes by their statistics."""
    engine, _ = at.lake.sql_engine()
    rows, engine.in_memory_rows = engine.in_memory_rows, -1
    statement(at, sql, truths)
    engine.in_memory_rows = rows


def narrowed_statement(at: Opened, sql: str, truths: list[Truth]) -> None:
    """A statement whose tables are merged, or on a store, and so narrowed before the engine has them."""
    for way in ("pages", "slices"):
        with reading_by(at.table, way, copied_share=1):
            statement_over_files(at, sql, truths)


def joined(at: Opened, sql: str, truths: list[Truth]) -> None:
    """A condition in a subquery, and over a join, which filters its tables while it runs."""
    text = f"SELECT n FROM (SELECT * FROM t) WHERE {sql}"
    assert _sorted(at.lake.sql(text)) == passing(truths)
    text = f"SELECT n FROM t JOIN (SELECT n AS other FROM t WHERE n < 30) ON n = other WHERE {sql}"
    assert _sorted(at.lake.sql(text)) == [number for number in passing(truths) if number < 30]


def role(at: Opened, sql: str, truths: list[Truth]) -> None:
    """The rows that a role may see."""
    part = RestrictedTable(at.table, Policy(wheres=(sql,)))
    assert _sorted(part.scan(columns=["n"])) == passing(truths)


def role_scan(at: Opened, sql: str, truths: list[Truth]) -> None:
    """A scan by a role that may see about half of the rows."""
    part = RestrictedTable(at.table, Policy(wheres=("n % 2 = 0",)))
    found = _sorted(part.scan(columns=["n"], where=sql))
    assert found == [number for number in passing(truths) if number % 2 == 0]


def filtered(at: Opened, sql: str, truths: list[Truth]) -> None:
    """The rows that the filter of a table shows, through a scan and a count."""
    if at.deletes:
        # Its filter may name the key only.
        return
    at.table.alter(SetFilter(sql))
    try:
        assert _sorted(at.table.scan(columns=["n"])) == passing(truths)
        assert at.table.count(exact=True).rows == len(passing(truths))
    finally:
        at.table.alter(SetFilter(None))


def deleted(at: Opened, sql: str, truths: list[Truth]) -> None:
    """The rows that a delete leaves; they are written again."""
    if not at.deletes:
        return
    at.table.delete(where=sql)
    try:
        left = _sorted(at.table.scan(columns=["n"]))
        assert left == [number for number in range(ROWS) if not truths[number]]
    finally:
        at.table.write(pa.Table.from_batches([at.batch]))


def rewritten_rows(at: Opened, sql: str, truths: list[Truth]) -> None:
    """The rows that a rewrite changes; they are changed back."""
    if at.deletes:
        return
    before = at.table.version
    rewritten(at.table, set={"mark": "true"}, where=sql)
    changed = at.table.scan(columns=["n"], where="mark").read_all().column("n").to_pylist()
    at.table.restore(before)
    assert sorted(changed) == passing(truths)


def relation(at: Opened, sql: str, truths: list[Truth]) -> None:
    """The relation of DuckDB, whose conditions that name no function and no cast mean the same."""
    if re.search(r"CAST|::|\.|\bf|\(\w+\.?\w* [-+*/%|]|\b[a-z_]+\(|TIME|\\", sql):
        return
    found = at.table.to_duckdb().filter(sql).select("n").fetchall()
    assert sorted(number for (number,) in found) == passing(truths)


EVERY: tuple[Way, ...] = (projection, scan, narrowed_scan, statement)
SOME: tuple[Way, ...] = (
    statement_over_files, narrowed_statement, joined, role, role_scan, filtered, deleted, relation,
)  # fmt: skip
RARE: tuple[Way, ...] = (rewritten_rows,)


def through(at: Opened, sql: str, truths: list[Truth], ways: tuple[Way, ...]) -> Iterator[str]:
    """Return what is wrong with the answers of the ways."""
    for way in ways:
        try:
            way(at, sql, truths)
        except AssertionError as error:
            yield f"{way.__name__}: {sql}: {error}"
        except Exception as error:  # noqa: BLE001 - reported
            yield f"{way.__name__}: {sql}: {type(error).__name__}: {str(error)[:300]}"


def all_projected(at: Opened, predicates: list[tuple[str, list[Truth]]]) -> Iterator[str]:
    """Return what is wrong with many predicates that one statement projects."""
    columns = ", ".join(f"({sql}) AS p{place}" for place, (sql, _) in enumerate(predicates))
    found = at.lake.sql(f"SELECT n, {columns} FROM t ORDER BY n").read_all()
    for place, (sql, truths) in enumerate(predicates):
        if found.column(f"p{place}").to_pylist() != truths:
            yield f"all_projected: {sql}: {found.column(f'p{place}').to_pylist()}, and not {truths}"
