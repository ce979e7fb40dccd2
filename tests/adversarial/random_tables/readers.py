"""All interfaces that read a table, each of which must return the rows of the model."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import duckdb
import httpx
import polars as pl
import pyarrow as pa
from adbc_driver_flightsql import dbapi

import lakebed
from lakebed import KeyRange
from lakebed.errors import Code, UsageError
from lakebed.model.policies import Policy
from lakebed.read.snapshot.restricted import RestrictedSnapshot
from lakebed.read.snapshot.snapshot import Readable
from lakebed.server.flight.flight_server import FlightServer
from lakebed.server.flight.statement_runs import StatementLimits
from lakebed.server.service.service import Service
from lakebed.storage import connect
from lakebed.upkeep.export.run import ExportRequest, run_export_task
from lakebed.upkeep.export.run import export as run_export
from tests.adversarial.random_tables.conditions import condition, conjunction, negated
from tests.adversarial.random_tables.model import Model, Row, same, texts
from tests.processes.web.serving import serving


@dataclass
class Ways:
    """An instance, and the services through which it is also read."""

    lake: lakebed.Instance
    connected: Any
    flight: Any
    folder: Path
    url: str
    made: int = 0
    """The number of tables, files and folders made by readers."""


Reader = Callable[["Visit"], None]


@contextmanager
def ways(folder: Path) -> Iterator[Ways]:
    """Make a new instance in a folder, with its services."""
    lake = lakebed.create(str(folder / "lake"))
    server = FlightServer(Service(lake), limits=StatementLimits(None))
    with (
        serving(lake) as url,
        lakebed.connect(url) as connected,
        dbapi.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True) as flight,
    ):
        yield Ways(lake, connected, flight, folder, url)
    server.stop()


@dataclass
class Visit:
    """A table or a snapshot, the rows that it must show, and a random source."""

    ways: Ways
    name: str
    at: Readable
    version: int
    model: Model
    chance: Random

    @cached_property
    def named(self) -> str:
        """The version in SQL."""
        return f'"{self.name}@{self.version}"'

    def same(self, found: pa.Table, wanted: list[Row], names: list[str] | None = None, *, ordered: bool = True) -> None:
        model = self.model
        if names is not None:
            numbers = [model.named(name).number for name in names]
            wanted = [{number: row[number] for number in numbers} for row in wanted]
        same(model, model.read(found, names), wanted, ordered=ordered and names is None)

    def names(self) -> list[str] | None:
        """Return some columns, in any order; None: all."""
        names = [column.name for column in self.model.columns]
        return self.chance.sample(names, self.chance.randint(1, len(names))) if self.chance.random() < 0.5 else None

    def where(self) -> Any:
        return condition(self.chance, self.model.columns)

    def key(self) -> Row:
        """Return a key, often an existing one."""
        if self.model.rows and self.chance.random() < 0.7:
            return self.chance.choice(self.model.rows)
        return {c.number: self.chance.choice(c.kind.contents) for c in self.model.keys}

    def bound(self) -> tuple[Any, ...]:
        columns = self.model.row_key
        row = self.key()
        return tuple(row[c.number] for c in columns[: self.chance.randint(1, len(columns))])

    def range(self) -> tuple[KeyRange, Callable[[Row], bool]]:
        """Return a range, and whether a row is in it."""
        model, columns = self.model, self.model.row_key

        def rank(bound: tuple[Any, ...]) -> tuple[int, ...]:
            return tuple(c.kind.rank(v) for c, v in zip(columns, bound, strict=False))

        low, high = sorted([self.bound(), self.bound()], key=rank)
        inclusive = self.chance.random() < 0.5
        if rank(low) == rank(high) or rank(high)[: len(low)] == rank(low) or rank(low)[: len(high)] == rank(high):
            inclusive, high = True, low
        used_low: Any = None if self.chance.random() < 0.2 else low
        used_high: Any = None if self.chance.random() < 0.2 else high

        def inside(row: Row) -> bool:
            place = model.place(row, columns)
            if used_low is not None and place[: len(low)] < rank(low):
                return False
            if used_high is None:
                return True
            cut = place[: len(high)]
            return cut <= rank(high) if inclusive else cut < rank(high)

        return KeyRange(used_low, used_high, max_inclusive=inclusive if used_high is not None else False), inside

    def ranges(self) -> tuple[list[KeyRange], Callable[[Row], bool]]:
        """Return no, one or several ranges, which may overlap, and whether a row is in any of them."""
        some = [self.range() for _ in range(self.chance.choice([0, 0, 0, 1, 1, 2, 4]))]
        return [keys for keys, _ in some], lambda row: not some or any(inside(row) for _, inside in some)

    def rows(self, inside: Callable[[Row], bool]) -> list[Row]:
        """Return the rows in some ranges, in key order."""
        return [row for row in self.model.sorted() if inside(row)]


def _scan(visit: Visit, table: Any) -> None:
    """Combine any options of a scan."""
    chance, names, model = visit.chance, visit.names(), visit.model
    ranges, inside = visit.ranges()
    wanted = visit.rows(inside)
    options: dict[str, Any] = {}
    if chance.random() < 0.6:
        where = visit.where()
        options["where"] = where.sql
        wanted = [row for row in wanted if where.of(row) is True]
    if chance.random() < 0.3:
        options["reverse"] = True
    limit = chance.choice([0, 1, 3, 10]) if chance.random() < 0.3 else None
    if limit is not None:
        options["limit"] = limit
    try:
        found = table.scan(*ranges, columns=names, **options).read_all()
        if options.get("reverse"):
            found = found.take(pa.array(range(found.num_rows - 1, -1, -1), pa.int64()))
        if limit is None:
            visit.same(found, wanted, names)
            return
        assert found.num_rows == min(limit, len(wanted)), f"{found.num_rows} rows of {len(wanted)}"
        if names is None:
            rows = model.read(found)
            cut = wanted[len(wanted) - len(rows) :] if options.get("reverse") else wanted[:limit]
            assert [model.place(row) for row in rows] == [model.place(row) for row in cut], "other keys"
    except BaseException as error:
        error.add_note(f"scan({ranges}, columns={names}, {options})")
        raise


def scan_all(visit: Visit) -> None:
    visit.same(visit.at.scan().read_all(), visit.model.sorted())


def scan(visit: Visit) -> None:
    _scan(visit, visit.at)


def remote_scan(visit: Visit) -> None:
    _scan(visit, visit.ways.connected.table(visit.name).at(version=visit.version))


def _get(visit: Visit, table: Any) -> None:
    model, names = visit.model, visit.names()
    for _ in range(2):
        row = visit.key()
        place = model.place(row, model.row_key)
        wanted = [one for one in model.sorted() if model.place(one, model.row_key) == place]
        key = [row[c.number] for c in model.row_key]
        try:
            visit.same(table.get(*key, columns=names), wanted, names)
        except BaseException as error:
            error.add_note(f"get({key}, columns={names})")
            raise


def get(visit: Visit) -> None:
    _get(visit, visit.at)


def remote_get(visit: Visit) -> None:
    _get(visit, visit.ways.connected.table(visit.name).at(version=visit.version))


def _get_many(visit: Visit, table: Any) -> None:
    model, names = visit.model, visit.names()
    rows = [visit.key() for _ in range(visit.chance.choice([1, 3, 40]))]
    places = {model.place(row, model.row_key) for row in rows}
    wanted = [row for row in model.sorted() if model.place(row, model.row_key) in places]
    keys: Any = model.table(rows, model.row_key)
    if visit.chance.random() < 0.5:
        keys = [tuple(row[c.number] for c in model.row_key) for row in rows]
    visit.same(table.get_many(keys, columns=names), wanted, names)


def get_many(visit: Visit) -> None:
    _get_many(visit, visit.at)


def remote_get_many(visit: Visit) -> None:
    _get_many(visit, visit.ways.connected.table(visit.name).at(version=visit.version))


def count(visit: Visit) -> None:
    some, inside = visit.ranges()
    for ranges, rows in (([], visit.model.rows), (some, visit.rows(inside))):
        exact = visit.at.count(*ranges, exact=True)
        assert (exact.rows, exact.rows_min, exact.rows_max) == (len(rows),) * 3, (exact, len(rows), ranges)
        about = visit.at.count(*ranges)
        assert about.rows_min <= len(rows) <= about.rows_max, (about, len(rows), ranges)


def prefixes(visit: Visit) -> None:
    columns = visit.model.row_key[: visit.chance.randint(1, len(visit.model.row_key))]
    ranges, inside = visit.ranges()
    found = visit.at.prefixes(len(columns), *ranges)
    places = sorted({visit.model.place(row, columns) for row in visit.rows(inside)})
    rows = visit.model.read(found, [c.name for c in columns])
    assert [visit.model.place(row, columns) for row in rows] == places, ranges


def restricted(visit: Visit) -> None:
    """Read as someone who may see some rows and columns."""
    model, where = visit.model, visit.where()
    columns = [c for c in model.columns if c.role != "value" or visit.chance.random() < 0.7]
    hidden = frozenset(c.name for c in model.columns if c not in columns)
    rows = [{c.number: row[c.number] for c in columns} for row in where.rows(model)]
    at: Any = RestrictedSnapshot(visit.at.snapshot(), Policy((where.sql,), hidden))
    part = replace(visit, at=at, model=replace(model, columns=columns, rows=rows))
    try:
        for read in (_scan, _get, _get_many):
            read(part, at)
        count(part)
        prefixes(part)
    except BaseException as error:
        error.add_note(f"shown are {where.sql}, without {set(hidden)}")
        raise


def sample(visit: Visit) -> None:
    found = visit.at.sample(5, seed=1)
    assert found.num_rows == min(5, len(visit.model.rows))


def explain(visit: Visit) -> None:
    visit.at.explain()


def _queries(visit: Visit, table: str, run: Callable[[str], pa.Table]) -> None:
    """Query with a predicate, a count, an order and groups in SQL."""
    where, names = visit.where(), visit.names()
    # The Flight SQL driver ends a statement at NUL.
    while "\0" in where.sql:
        where = visit.where()
    shown = ", ".join(f'"{name}"' for name in names) if names else "*"
    wanted = where.rows(visit.model)
    statement = f"SELECT {shown} FROM {table} WHERE {where.sql}"
    try:
        visit.same(run(statement), wanted, names, ordered=False)
        statement = f"SELECT count(*) AS n FROM {table} WHERE {where.sql}"
        assert run(statement).to_pylist() == [{"n": len(wanted)}]
        column = visit.chance.choice(visit.model.keys)
        statement = f'SELECT min("{column.name}") AS low, max("{column.name}") AS high FROM {table} WHERE {where.sql}'
        if column.kind.name not in ("uuid", "binary2", "bool") and wanted:
            found = run(statement)
            ranks = [column.kind.rank(row[column.number]) for row in wanted]
            ends = [column.kind.contents_of(found.column(i))[0] for i in range(2)]
            assert [column.kind.rank(end) for end in ends] == [min(ranks), max(ranks)], ends
    except BaseException as error:
        error.add_note(statement)
        raise


def sql(visit: Visit) -> None:
    _queries(visit, visit.named, lambda text: visit.ways.lake.sql(text).read_all())


def sql_over_files(visit: Visit) -> None:
    """The engine reads what it can of the files, however few rows there are."""
    engine, _ = visit.ways.lake.sql_engine()
    rows, engine.in_memory_rows = engine.in_memory_rows, -1
    try:
        sql(visit)
    finally:
        engine.in_memory_rows = rows


def remote_sql(visit: Visit) -> None:
    """Rare, because each statement takes a process."""
    if visit.chance.random() < 0.95:
        return
    _queries(visit, visit.named, lambda text: visit.ways.connected.sql(text).read_all())


def flight_sql(visit: Visit) -> None:
    def run(text: str) -> pa.Table:
        with visit.ways.flight.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetch_arrow_table()

    _queries(visit, visit.named, run)


def register(visit: Visit) -> None:
    context = datafusion.SessionContext()
    visit.at.register(context, "t")
    visit.same(context.sql("SELECT * FROM t").to_arrow_table(), visit.model.rows, ordered=False)


def pandas(visit: Visit) -> None:
    # pandas has no nanoseconds of a day, one null for NaN and null, and no integers with nulls.
    lossy = ("float", "double", "half", "time_ns")
    fits = [c for c in visit.model.columns if c.kind.name not in lossy and not (c.nullable and "int" in c.kind.name)]
    names = [c.name for c in fits]
    if names:
        schema = pa.schema([f.with_nullable(True) for f in map(visit.at.snapshot().schema.returned.field, names)])
        found = pa.Table.from_pandas(visit.at.to_pandas(columns=names), schema, preserve_index=False)
        visit.same(found, visit.model.sorted(), names)


def arrow(visit: Visit) -> None:
    ranges, inside = visit.ranges()
    visit.same(visit.at.to_arrow(*ranges), visit.rows(inside))
    visit.same(pa.table(visit.at), visit.model.sorted())


def _check_unsupported(error: UsageError) -> None:
    """Raise any error that is not about an unsupported type."""
    if error.code is not Code.TYPE_UNSUPPORTED:
        raise error


def _polars_condition(visit: Visit, depth: int) -> tuple[pl.Expr, Callable[[Row], bool | None]]:
    """Return a random predicate of Polars, and its truth for a row."""
    chance = visit.chance
    if depth and chance.random() < 0.6:
        (one, first), (other, second) = (_polars_condition(visit, depth - 1) for _ in range(2))
        if chance.random() < 0.2:
            return ~one, lambda row: negated(first(row))
        if chance.random() < 0.5:
            return one & other, lambda row: conjunction(first(row), second(row))
        return one | other, lambda row: negated(conjunction(negated(first(row)), negated(second(row))))
    column = chance.choice(visit.model.columns)
    kind, number, name = column.kind, column.number, pl.col(column.name)
    if not kind.is_key or kind.name.startswith(("binary", "uuid", "time_s")) or kind.name == "decimal50":
        if chance.random() < 0.5:
            return name.is_null(), lambda row: row[number] is None
        return name.is_not_null(), lambda row: row[number] is not None
    content = chance.choice(kind.contents)
    series = pl.Series("x", pl.from_arrow(kind.array([content])))
    value = series.item()
    # Python has no nanoseconds.
    exact = pl.Series("x", [value], dtype=series.dtype).equals(series, null_equal=True)
    literal = pl.lit(value, dtype=series.dtype) if exact else pl.lit(series).first()
    sign = chance.choice(["eq", "ne", "lt", "le", "gt", "ge"])
    meaning: Any = getattr(operator, sign)
    return meaning(
        name, literal
    ), lambda row: None if row[number] is None else meaning(kind.rank(row[number]), kind.rank(content))


def polars(visit: Visit) -> None:
    try:
        frame = visit.at.lazy_polars()
    except UsageError as error:
        _check_unsupported(error)
        return
    where, passes = _polars_condition(visit, 2)
    frame = frame.filter(where)
    known = [row for row in visit.model.sorted() if passes(row) is True]
    assert frame.select(pl.len()).collect().item() == len(known), (str(where), len(known))
    names = [
        c.name for c in visit.model.columns if c.kind.name not in ("map", "decimal50", "fixed_list", "uuid", "json")
    ]
    if names:
        visit.same(frame.select(names).collect().to_arrow(), known, names)


def to_duckdb(visit: Visit) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            relation = visit.at.to_duckdb(connection=connection)
        except UsageError as error:
            _check_unsupported(error)
            return
        visit.same(relation.to_arrow_table(), visit.model.rows, ordered=False)


def _copy(visit: Visit, source: Path, wanted: list[Row]) -> None:
    """Write files that Lakebed wrote into a table that keeps all rows."""
    schema = visit.at.snapshot().schema
    groups = [
        {field.name: pa.field(field.name, field.returned_type, field.nullable) for field in group}
        for group in (schema.row_key, schema.sort_key, schema.values)
    ]
    visit.ways.made += 1
    name = f"copy{visit.ways.made}"
    copy = visit.ways.lake.create_table(name, lakebed.Schema(*groups))
    try:
        if wanted:
            copy.write(source)
        visit.same(copy.scan().read_all(), wanted)
    finally:
        visit.ways.lake.drop_table(name)


def _fits(visit: Visit, format: str, *, exported: bool) -> bool:
    """Return whether a format can represent every value of the table: JSON exports have no NaN, and CSV text has no
    NUL.
    """
    kinds = [column.kind for column in visit.model.columns]
    match format:
        case "csv":
            rows = visit.model.rows
            return not any(pa.types.is_nested(kind.type) for kind in kinds) and "\\x00" not in "".join(texts(rows))
        case "json":
            floats = exported and any("float" in str(kind.type) or "double" in str(kind.type) for kind in kinds)
            return not floats and not any(kind.name == "map" for kind in kinds)
        case _:
            return True


def export(visit: Visit) -> None:
    format = visit.chance.choice(["parquet", "csv", "json"])
    if not _fits(visit, format, exported=True):
        return
    where = visit.where()
    visit.ways.made += 1
    folder = visit.ways.folder / f"export{visit.ways.made}"
    target = connect(folder)
    table = visit.ways.lake.table(visit.name)

    def execute(tasks: Any) -> list[Any]:
        return [run_export_task(task, table.storage, target, visit.ways.folder) for task in tasks]

    try:
        run_export(table, visit.at.snapshot(), target, ExportRequest((), where.sql, format, 2), execute)
        _copy(visit, folder, where.rows(visit.model))
    except BaseException as error:
        error.add_note(f"{format} where {where.sql}")
        raise


ACCEPTED = {"json": "application/x-ndjson", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def http(visit: Visit) -> None:
    """Read the formats of an answer."""
    format = visit.chance.choice(list(ACCEPTED))
    if not _fits(visit, format, exported=False):
        return
    where = visit.where()
    body = {"where": where.sql, "at": str(visit.version)}
    url = f"{visit.ways.url}/v1/tables/{visit.name}/scan"
    answer = httpx.post(url, json=body, headers={"Accept": ACCEPTED[format]}, timeout=300)
    assert answer.status_code == 200, answer.text
    visit.ways.made += 1
    path = visit.ways.folder / f"answer{visit.ways.made}.{format}"
    path.write_bytes(answer.content)
    try:
        _copy(visit, path, where.rows(visit.model))
    except BaseException as error:
        error.add_note(f"{format} where {where.sql}: {answer.content[:600]!r}")
        raise


READERS: tuple[Reader, ...] = (
    scan, scan, get, get_many, count, prefixes, restricted, sample, explain, sql, sql_over_files, remote_scan,
    remote_get, remote_get_many, remote_sql, flight_sql, register, pandas, arrow, polars, to_duckdb, export, http,
)  # fmt: skip
