"""The answers of the public calls about the golden instance, as JSON: values only, so names of columns do not
matter.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from unittest.mock import patch

import lakebed
from lakebed import KeyRange
from lakebed.errors import NotFoundError, UsageError
from lakebed.upkeep.retention.run import collect_garbage
from tests.golden.listing import KINDS

ROWS_MAX = 40
ROWS_READ_MAX = 4100
"""All rows of each table except ``wide``, whose partitions take milliseconds each."""


def answers(root):
    """Return answers by table and query. Only reads."""
    lake = lakebed.open(str(root / "lake"))
    return {
        "tables": lake.tables(),
        "online": [lake.is_online(name) for name in lake.tables()],
        "page_rows": lake.settings()["page_rows"],
        **{name: _table(lake, name) for name in lake.tables()},
        "kinds, by key": _kinds(lake.table("kinds")),
        "newest, by v": [_rows(lake.table("newest").get(by={"v": v})) for v in (0, 5, 77)],
        "events, by key": _events(lake),
        "events, by version": _versions(lake.table("events"), "first"),
        "truncated, by version": _versions(lake.table("truncated"), "retained"),
    }


def _table(lake, name):
    table = lake.table(name)
    verified = table.verify(files=True, deep=True)
    return {
        "rows": _answer(lambda: _rows(table.scan(limit=ROWS_READ_MAX).read_all())),
        "last rows": _answer(lambda: _rows(table.scan(limit=ROWS_MAX, reverse=True).read_all())),
        "count": _answer(lambda: table.count().rows),
        "history": _values(table.history().drop_columns(["detail"])),
        "partitions": _answer(lambda: _values(table.partitions())),
        "files": _answer(lambda: _values(table.files())),
        "requests": _values(table.requests()),
        "failures": _values(table.failures()),
        "tags": table.tags(),
        "settings": _changed(table.settings(), lake.settings()),
        "schema": [[field.id, field.name, str(field.type), field.nullable] for field in table.schema.fields],
        "sound": verified.sound,
        "findings": [str(finding) for finding in verified.findings],
    }


def _answer(call):
    """Return the answer of a call; the code of its error: no file may have the rows of a table, an index has none."""
    try:
        return call()
    except (UsageError, NotFoundError) as error:
        return str(error.code)


def _kinds(table):
    rows = table.to_arrow()
    first = rows.slice(0, 1).to_pylist()[0]
    key = [first[name] for name in table.schema.row_key_names]
    return [_rows(table.get(*key)), _rows(table.get(*key, columns=["words", "later"]))]


def _events(lake):
    table = lake.table("events")
    keys = ["event-k-0007", "event-a-0003", "event-c-0001", "event-q-0001", "none"]
    with patch("lakebed.read.snapshot.pins.TIMEOUT_S", 10**9):
        waste = collect_garbage(table, dry_run=True)
    return {
        "get": [_rows(table.get(key)) for key in keys],
        "get_many": _rows(table.get_many(keys)),
        "scan": _rows(table.scan(KeyRange("event-k-0090", "event-k-0120"), where="at % 10 = 0", limit=5).read_all()),
        "reverse": _rows(table.scan(reverse=True, limit=3).read_all()),
        "sql": _rows(lake.sql("SELECT count(*), min(id), max(at) FROM events").read_all()),
        "garbage": [waste.files, waste.waiting, waste.pinned],
    }


def _versions(table, tag):
    head = max(row[0] for row in _values(table.history()))
    retained = table.at(tag=tag)
    return {"tag": _rows(retained.to_arrow()), "newest": table.count().rows, "head": head}


def _rows(table):
    """Return the rows; of large tables only the first, and a digest of all."""
    rows = [[repr(value) for value in row.values()] for row in table.to_pylist()]
    if len(rows) <= ROWS_MAX:
        return rows
    digest = hashlib.sha256("\n".join("\t".join(row) for row in rows).encode()).hexdigest()
    return [*rows[:3], f"… {len(rows)} rows, {digest}"]


def _values(table):
    all_shown = table.num_rows <= ROWS_MAX
    shown = table if all_shown else table.slice(0, 3)
    rows = [[_plain(value) for value in row.values()] for row in shown.to_pylist()]
    return rows if all_shown else [*rows, f"… {table.num_rows} rows"]


def _plain(value):
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, str):
        for kind, name in (KINDS[0], KINDS[1]):
            value = kind.sub(name, value)
        return value.rpartition("/lake/")[2]
    return value if value is None or isinstance(value, bool | int | float) else repr(value)


def _changed(settings, defaults):
    return {name: value for name, value in settings.items() if value != defaults[name]}
