"""A key type is one class: what handles keys asks the type of the field, and no other module names it."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from litestar.testing import TestClient

import lakebed
from benchmarks.session_here import SessionHere
from lakebed import KeyRange, Schema
from lakebed.cli import main
from lakebed.errors import BadKeyError, Code
from lakebed.jobs.pipeline import Pipeline
from lakebed.model import key_types, type_names
from lakebed.model.number_keys import WholeNumbers
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.table.client.request_values import key_document

KIND = pa.duration("us")
MICROSECOND = dt.timedelta(microseconds=1)


class Durations(WholeNumbers, frozen=True):
    """Lengths of time, as microseconds; as text a number of seconds."""

    names: ClassVar[str] = "durations"
    values: ClassVar[tuple[type, ...]] = (dt.timedelta,)

    @classmethod
    def of(cls, kind):
        return cls.within(kind) if kind == KIND else None

    def content_of(self, value, name):
        return WholeNumbers.content_of(self, value // MICROSECOND if isinstance(value, dt.timedelta) else value, name)

    def value_of(self, content):
        return content * MICROSECOND

    def value_of_text(self, text):
        return dt.timedelta(seconds=float(text))

    def json(self, content):
        return content / 1e6

    @classmethod
    def word(cls, value):
        return str(value.total_seconds())

    def literal(self, value):
        return f"arrow_cast({value.value}, 'Duration(Microsecond)')"

    def of_scalar(self, scalar):
        return scalar.value

    def number(self, literal):
        return literal.value


@pytest.fixture(autouse=True)
def _known(monkeypatch):
    monkeypatch.setattr(key_types, "KEY_TYPES", [*key_types.KEY_TYPES, Durations])
    monkeypatch.setitem(type_names.PLAIN, str(KIND), KIND)
    key_types.key_type.cache_clear()
    yield
    key_types.key_type.cache_clear()


def seconds(*numbers):
    return [dt.timedelta(seconds=number) for number in numbers]


WRITES = [(-90, 0, 0.5, 86_400), (-1, 1.5, 7_200), (0.000001, 3)]
ALL = sorted(seconds(*(number for write in WRITES for number in write)))


@pytest.fixture
def table(lake):
    table = lake.create_table("t", Schema({"k": KIND}, {}, {"v": "double"}), split_points=seconds(1))
    for write in WRITES:
        table.write(pa.table({"k": pa.array(seconds(*write), KIND), "v": pa.array(write, pa.float64())}))
    return table


def keys_of(rows):
    return rows.column("k").to_pylist()


def test_a_new_type_is_written_read_and_compacted(lake, table):
    for _ in range(2):
        assert keys_of(table.scan().read_all()) == ALL
        assert [keys_of(table.get(key)) for key in ALL] == [[key] for key in ALL]
        assert keys_of(table.get_many(ALL[1:4])) == ALL[1:4]
        inside = KeyRange(*seconds(-1, 3))
        assert keys_of(table.scan(inside).read_all()) == [key for key in ALL if inside.min[0] <= key < inside.max[0]]
        Pipeline(lake, SessionHere()).compact(table, strategy="full")
    assert len(table.state().referenced()) == 2
    assert lakebed.open(lake.url)["t"].schema.row_key[0].type == KIND


@pytest.mark.parametrize("operator", ["<", "<=", "=", ">=", ">"])
def test_a_new_type_is_compared_in_sql(lake, table, operator):
    (limit,) = seconds(0.5)
    meets = {"<": limit.__gt__, "<=": limit.__ge__, "=": limit.__eq__, ">=": limit.__le__, ">": limit.__lt__}[operator]
    found = lake.sql(f"SELECT k FROM t WHERE k {operator} $1 ORDER BY k", parameters=[limit])
    assert keys_of(found.read_all()) == [key for key in ALL if meets(key)]
    read = table.explain(where=f"k {operator} arrow_cast(500000, 'Duration(Microsecond)')")
    assert read.partitions == (2 if operator[0] == ">" else 1)


def test_a_new_type_is_text_on_the_command_line(lake, table, capsys):
    assert main(["--instance", lake.url, "get", "t", "1.5", "--columns", "v"]) == 0
    assert "1.5" in capsys.readouterr().out
    assert main(["--instance", lake.url, "get", "t", "long"]) != 0
    assert "key field k is duration[us]: cannot read 'long'" in capsys.readouterr().err


def test_a_new_type_is_served_and_shown(lake, table):
    with Service(lake, maintain=False) as service, TestClient(make_app(service)) as client:
        key = key_document(seconds(7_200))
        rows = client.post("/v1/tables/t/get_many", json={"keys": [key]})
        assert rows.json() == {"k": "2:00:00", "v": 7200.0}
        assert "0:00:01" in client.get("/tables/t").text


def test_a_new_type_is_refused_what_it_does_not_hold(table):
    with pytest.raises(BadKeyError) as caught:
        table.get("1.5")
    assert caught.value.code is Code.KEY_TYPE_MISMATCH


def test_no_module_but_those_of_key_types_asks_which_type_a_key_has():
    classes = "|".join(one.__name__ for one in key_types.KEY_TYPES)
    asks = re.compile(rf"(key_type\.kind\b|case ({classes})\(|isinstance\([^)]*\b({classes})\b)")
    assert asks.search("if isinstance(field.key_type, Integers):")
    source = Path(lakebed.__file__).parent
    asking = {
        path.relative_to(source).as_posix() for path in source.rglob("*.py") if asks.search(path.read_text("utf-8"))
    }
    assert not asking
