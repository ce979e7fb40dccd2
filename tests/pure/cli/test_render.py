"""How values look in JSON and in text."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import re
from typing import Any

import pyarrow as pa
import pytest

from lakebed.cli.render import Output, columns, key_text, shown
from lakebed.model.json_values import encode_array, plain
from lakebed.model.wording import size_text
from tests.terminals import Terminal

NEW_YORK = dt.timezone(dt.timedelta(hours=-5))


@pytest.mark.parametrize(
    ("kind", "values", "encoded"),
    [
        (pa.int64(), [2**62 + 1, None], [2**62 + 1, None]),
        (pa.bool_(), [True, None], [True, None]),
        (
            pa.float64(),
            [1.5, float("nan"), float("inf"), -float("inf"), None],
            [1.5, "NaN", "Infinity", "-Infinity", None],
        ),
        (pa.float32(), [0.5, float("nan")], [0.5, "NaN"]),
        (pa.decimal128(20, 10), [decimal.Decimal(0), None], ["0.0000000000", None]),
        (pa.binary(), [b"\x00\xff", b"", None], ["00ff", "", None]),
        (pa.binary(2), [b"\x00\xff"], ["00ff"]),
        (pa.date32(), [dt.date(2013, 1, 31), None], ["2013-01-31", None]),
        (pa.time64("us"), [dt.time(5)], ["05:00:00.000000"]),
        (pa.timestamp("s"), [1359608400], ["2013-01-31T05:00:00"]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2013, 1, 31, 5, tzinfo=dt.UTC)], ["2013-01-31T05:00:00.000000Z"]),
        (pa.timestamp("s", "-05:00"), [dt.datetime(2013, 1, 31, 5, tzinfo=NEW_YORK)], ["2013-01-31T10:00:00Z"]),
        (pa.timestamp("ns"), [1, None], ["1970-01-01T00:00:00.000000001", None]),
        (pa.list_(pa.float64()), [[1.0, float("nan")], None, []], [[1.0, "NaN"], None, []]),
        (pa.struct([("a", pa.binary())]), [{"a": b"\x01"}, {"a": None}, None], [{"a": "01"}, {"a": None}, None]),
        (
            pa.map_(pa.string(), pa.date32()),
            [[("k", dt.date(1970, 1, 1))], None, []],
            [[["k", "1970-01-01"]], None, []],
        ),
    ],
    ids=str,
)
def test_a_column_becomes_json(kind: pa.DataType, values: list[Any], encoded: list[Any]) -> None:
    column = pa.array(values, kind)
    assert encode_array(column) == encoded
    assert encode_array(column.slice(1)) == encoded[1:]


def test_members_of_a_missing_struct_do_not_show() -> None:
    inner = pa.array([1, 2], pa.int32())
    column = pa.StructArray.from_arrays([inner], names=["a"], mask=pa.array([False, True]))
    assert encode_array(column) == [{"a": 1}, None]


def test_a_key_value_becomes_json() -> None:
    moment = dt.datetime(2013, 1, 31, 5, tzinfo=NEW_YORK)
    assert plain({"at": moment, "day": dt.date(2013, 1, 31), "b": b"\xff", "f": float("nan")}) == {
        "at": "2013-01-31T10:00:00Z",
        "day": "2013-01-31",
        "b": "ff",
        "f": "NaN",
    }


def test_text_cannot_move_the_cursor() -> None:
    assert shown("a\nb\x1b[2J\u202e\u00fc") == "a\\nb\\x1b[2J\\u202e\u00fc"


def test_columns_are_as_wide_as_they_need() -> None:
    assert list(columns(("name", "n"), [("a", 1), ("longer", 22), (None, None)]).lines([])) == [
        "name    n",
        "a        1",
        "longer  22",
        "-       -",
    ]
    assert list(columns(("name",), []).lines([])) == ["name"]


def test_a_terminal_sees_the_same_columns_with_a_bold_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches: one heading, and the widths of the batch before. Text that looks like markup is text."""
    monkeypatch.setenv("COLUMNS", "80")
    batches = [
        pa.record_batch({"name": names, "n": numbers})
        for names, numbers in ((["[b]", "longer"], [1, 22]), (["c"], [3]))
    ]
    with contextlib.redirect_stdout(Terminal()) as screen:
        assert Output(as_json=False).rows(batches[0].schema, batches) == 3
    heading, *lines = screen.getvalue().splitlines()
    assert "\x1b[1m" in heading
    assert re.sub(r"\x1b\[\d+m", "", heading).rstrip() == "name     n"
    monkeypatch.setenv("NO_COLOR", "1")
    Output(as_json=False).rows(batches[0].schema, batches)
    assert screen.getvalue().count("\x1b[1m") == 1
    assert [line.rstrip() for line in lines] == ["[b]      1", "longer  22", "c        3"]


def test_a_narrow_terminal_cuts_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    with contextlib.redirect_stdout(Terminal()) as screen:
        Output(as_json=False).document({}, [columns(("name", "text"), [("a", "x" * 30)])])
    assert screen.getvalue().splitlines()[1] == "a     xxxxxxx…xxxxxx"


@pytest.mark.parametrize("width", range(20, 140))
def test_figures_are_whole_at_every_width_or_their_column_is_left_out(width: int) -> None:
    rows = [
        (
            "a_table_with_a_very_long_name_of_many_words",
            10_000,
            "60.8 KiB",
            "12 runs, 3.1 GiB",
            "~123456789",
            "a b " * 9,
        ),
        ("t", None, "", "1 run, 5 bytes", 7, "online"),
    ]
    table = columns(("table", "rows", "size", "to merge", "estimate", "state"), rows)
    (heading, *lines), left_out = table.fitted(width, [])
    words = heading.split()
    for name, place in (("rows", 1), ("size", 2), ("merge", 3), ("estimate", 4)):
        assert (name in words) == (str(rows[0][place]) in lines[0]), "cut figures are wrong ones"
    assert lines[0].startswith("a_tab") or width < 40
    assert len(left_out) == 6 - len({*words} - {"…", "to"})
    assert width < 30 or max(map(len, (heading, *lines))) <= width


def test_names_are_cut_in_the_middle_and_columns_without_a_text_go() -> None:
    table = columns(
        ("name", "since", "text"), [("table_of_flights_2012", "", "x y"), ("table_of_flights_2013", "", "z")]
    )
    assert table.without_empty().fitted(19, []) == (
        ["name           text", "table_…s_2012  x y", "table_…s_2013  z"],
        [],
    )


def test_estimates_stand_with_the_numbers() -> None:
    assert list(columns(("rows",), [("~7",), (1234,)]).lines([])) == ["rows", "  ~7", "1234"]


def test_bounds_show_the_part_they_have() -> None:
    assert key_text(None) == "-"
    assert key_text({"a": "x", "b": None}) == "x"
    assert key_text({"a": "", "b": dt.date(2013, 1, 31)}) == '"", 2013-01-31'


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (3 * 2**40, "3.0 TiB")]
)
def test_sizes_are_in_the_largest_unit(size: int, text: str) -> None:
    assert size_text(size) == text
