"""All interfaces to the rows of a table, each of which must return the rows of the oracle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import datafusion
import duckdb
import polars as pl
import pyarrow as pa

from lakebed import KeyRange
from lakebed.errors import Code, UsageError
from lakebed.read.snapshot.snapshot import Readable
from lakebed.table.instance import Instance
from tests.adversarial.merging_oracle import KEY_NAMES, SORT_NAME, Row, in_order

GROUPS, NUMBERS = "abc", range(3)

Interface = Callable[["Visit"], None]


class Visit:
    """A table or a snapshot, the rows that it must show, and a random source."""

    def __init__(self, lake: Instance, table: Readable, rows: list[Row], chance: Random, version: int) -> None:
        self.lake, self.table, self.rows, self.chance, self.version = lake, table, rows, chance, version

    def some_keys(self) -> list[tuple[str, int]]:
        """Return some keys, some of which have rows."""
        return [(self.chance.choice(GROUPS), self.chance.choice(NUMBERS)) for _ in range(3)]

    def range(self) -> tuple[KeyRange, list[Row]]:
        """Return a range and its rows."""
        low, high = sorted([(self.chance.choice(GROUPS), self.chance.choice(NUMBERS)) for _ in range(2)])
        return KeyRange(low, high), [row for row in self.rows if low <= (row["g"], row["n"]) < high]


def same(found: list[Row], wanted: list[Row], *, ordered: bool = True) -> None:
    """Assert the same rows, in key order if that is guaranteed."""
    keys = [(row["g"], row["n"], row[SORT_NAME]) for row in found]
    assert not ordered or keys == sorted(keys), f"not in key order: {keys}"
    missing = [row for row in wanted if wanted.count(row) > found.count(row)]
    extra = [row for row in found if found.count(row) > wanted.count(row)]
    assert not missing, f"missing {missing}, extra {extra}"
    assert not extra, f"extra {extra}"


def scan(visit: Visit) -> None:
    same(visit.table.scan().read_all().to_pylist(), visit.rows)


def scan_reverse(visit: Visit) -> None:
    same(visit.table.scan(reverse=True).read_all().to_pylist()[::-1], visit.rows)


def scan_range(visit: Visit) -> None:
    keys, wanted = visit.range()
    same(visit.table.scan(keys).read_all().to_pylist(), wanted)


def scan_columns(visit: Visit) -> None:
    names = visit.table.snapshot().schema.names
    chosen = [name for name in names if visit.chance.random() < 0.5] or [names[-1]]
    found = visit.table.scan(columns=chosen).read_all()
    assert found.column_names == chosen
    wanted = Counter(tuple(row[name] for name in chosen) for row in visit.rows)
    assert Counter(tuple(row.values()) for row in found.to_pylist()) == wanted


PREDICATES: dict[str, Callable[[Row], bool]] = {
    "n >= 2": lambda row: row["n"] >= 2,
    "g = 'b'": lambda row: row["g"] == "b",
    "s > 1": lambda row: row[SORT_NAME] > 1,
    "a >= 5": lambda row: row.get("a") is not None and row["a"] >= 5,
    "a IS NULL": lambda row: row.get("a") is None,
    "b < 'm' AND n < 3": lambda row: row.get("b") is not None and row["b"] < "m" and row["n"] < 3,
}


def _predicate(visit: Visit) -> tuple[str, list[Row]]:
    names = visit.table.snapshot().schema.names
    fits = [text for text in PREDICATES if all(name in names or f"{name} " not in text for name in "ab")]
    text = visit.chance.choice(fits)
    return text, [row for row in visit.rows if PREDICATES[text](row)]


def scan_where(visit: Visit) -> None:
    text, wanted = _predicate(visit)
    same(visit.table.scan(where=text).read_all().to_pylist(), wanted)


def scan_limit(visit: Visit) -> None:
    """Read the first or last rows; any rows of equal keys may be returned."""
    text, wanted = _predicate(visit)
    limit, reverse = visit.chance.choice([1, 2, 5]), visit.chance.random() < 0.5
    found = visit.table.scan(where=text, limit=limit, reverse=reverse).read_all().to_pylist()
    wanted = wanted[::-1] if reverse else wanted
    names = (*KEY_NAMES, SORT_NAME)
    assert [[row[name] for name in names] for row in found] == [[row[name] for name in names] for row in wanted[:limit]]
    assert all(row in wanted for row in found)


def get(visit: Visit) -> None:
    for key in visit.some_keys():
        wanted = [row for row in visit.rows if (row["g"], row["n"]) == key]
        same(visit.table.get(*key).to_pylist(), wanted)


def get_many(visit: Visit) -> None:
    keys = visit.some_keys()
    same(visit.table.get_many(keys).to_pylist(), [row for row in visit.rows if (row["g"], row["n"]) in keys])


def count(visit: Visit) -> None:
    for ranges, wanted in (((), visit.rows), *(((keys,), rows) for keys, rows in [visit.range()])):
        exact = visit.table.count(*ranges, exact=True)
        assert (exact.rows, exact.rows_min, exact.rows_max) == (len(wanted),) * 3
        about = visit.table.count(*ranges)
        assert about.rows_min <= len(wanted) <= about.rows_max


def sample(visit: Visit) -> None:
    size = visit.chance.choice([1, 3, 100])
    found = visit.table.sample(size, seed=visit.chance.randrange(9)).to_pylist()
    assert len(found) == min(size, len(visit.rows))
    left = list(visit.rows)
    for row in found:
        left.remove(row)


def prefixes(visit: Visit) -> None:
    assert visit.table.prefixes(1).to_pylist() == [{"g": g} for g in sorted({row["g"] for row in visit.rows})]
    wanted = sorted({(row["g"], row["n"]) for row in visit.rows})
    assert [tuple(row.values()) for row in visit.table.prefixes(2).to_pylist()] == wanted


def explain(visit: Visit) -> None:
    assert visit.table.explain().version == visit.version


def sql(visit: Visit) -> None:
    name = f"t@{visit.version}"
    same(visit.lake.sql(f"SELECT * FROM {name}").read_all().to_pylist(), visit.rows, ordered=False)
    text, wanted = _predicate(visit)
    [found] = visit.lake.sql(f"SELECT count(*) AS rows FROM {name} WHERE {text}").read_all().to_pylist()
    assert found["rows"] == len(wanted)


def pandas(visit: Visit) -> None:
    schema = visit.table.snapshot().schema.arrow
    same(pa.Table.from_pandas(visit.table.to_pandas(), schema, preserve_index=False).to_pylist(), visit.rows)


def polars(visit: Visit) -> None:
    same(visit.table.to_polars().to_dicts(), visit.rows)


def lazy_polars(visit: Visit) -> None:
    frame = visit.table.lazy_polars()
    same(frame.collect().to_dicts(), visit.rows)
    wanted = [row for row in visit.rows if row["n"] >= 2]
    same(frame.filter(pl.col("n") >= 2).collect().to_dicts(), wanted)
    assert frame.select(pl.len()).collect().item() == len(visit.rows)


def to_duckdb(visit: Visit) -> None:
    with duckdb.connect() as connection:
        found = visit.table.to_duckdb(connection=connection)
        same(found.to_arrow_table().to_pylist(), visit.rows, ordered=False)


def register(visit: Visit) -> None:
    context = datafusion.SessionContext()
    visit.table.register(context, "t")
    same(context.sql("SELECT * FROM t").to_arrow_table().to_pylist(), visit.rows, ordered=False)


def files(visit: Visit) -> None:
    """Files are returned only if their rows are those of the table."""
    try:
        found = visit.table.files()
    except UsageError as error:
        if error.code not in (Code.MERGE_MODE_MISMATCH, Code.FILTER_INVALID):
            raise
    else:
        if all(found.column("exact").to_pylist()):
            assert sum(found.column("rows").to_pylist()) == len(visit.rows)


INTERFACES: tuple[Interface, ...] = (
    scan,
    scan_reverse,
    scan_range,
    scan_columns,
    scan_where,
    scan_limit,
    get,
    get_many,
    count,
    sample,
    prefixes,
    explain,
    sql,
    pandas,
    polars,
    lazy_polars,
    to_duckdb,
    register,
    files,
)
"""All interfaces, quick ones first."""


def applied(rows: list[Row], changes: list[dict[str, Any]]) -> list[Row]:
    """Return the rows after changes of the feed."""
    left = list(rows)
    for change in changes:
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        match change["_change"]:
            case "insert" | "update_after":
                left.append(row)
            case "delete" | "update_before":
                left.remove(row)
            case "remove_range":
                gone = json.loads(change["_range"])
                left = [row for row in left if not _lies_in([row["g"], row["n"]], **gone)]
    return sorted(left, key=in_order)


def _lies_in(key: list[Any], min: list[Any] | None, max: list[Any] | None, max_inclusive: bool) -> bool:
    if min is not None and key[: len(min)] < min:
        return False
    if max is None:
        return True
    return key[: len(max)] <= max if max_inclusive else key[: len(max)] < max
