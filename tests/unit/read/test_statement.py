"""``AT`` behind a table's name becomes a schema that the engine can look up; nothing else is touched."""

from __future__ import annotations

import pytest

from lakebed.errors import UsageError
from lakebed.sql.statement import At, read_statement, split_statements


@pytest.mark.parametrize(
    ("text", "wanted", "moments"),
    [
        ("SELECT * FROM t AT (VERSION => 12)", 'SELECT * FROM "version 12".t', {"version 12": At("version", 12)}),
        ("select * from t at(version=>12) x", 'select * from "version 12".t x', {"version 12": At("version", 12)}),
        (
            "SELECT * FROM \"a-b\" AT (TAG => 'it''s'), t",
            'SELECT * FROM "tag it\'s"."a-b", t',
            {"tag it's": At("tag", "it's")},
        ),
        (
            "SELECT 1 FROM t AT (TIMESTAMP => '2026-01-31T12:00:00Z') JOIN u AT /* x */ (VERSION\n=> 3) ON a = b",
            'SELECT 1 FROM "timestamp 2026-01-31T12:00:00Z".t JOIN "version 3".u ON a = b',
            {"timestamp 2026-01-31T12:00:00Z": At("time", "2026-01-31T12:00:00Z"), "version 3": At("version", 3)},
        ),
    ],
)
def test_a_moment_becomes_a_schema(text, wanted, moments):
    found = read_statement(text)
    assert found.text == wanted
    assert found.moments == moments


@pytest.mark.parametrize(
    "text",
    [
        "SELECT at FROM t WHERE at > 5",
        "SELECT 't AT (VERSION => 12)' FROM t",
        'SELECT "t AT (VERSION => 12)" FROM t',
        "SELECT 1 -- t AT (VERSION => 12)",
        "SELECT 1 /* t AT /* nested */ (VERSION => 12) */ FROM t",
        "SELECT E'it\\'s t AT (VERSION => 12)'",
        "SELECT $$ t AT (VERSION => 12) $$, $a$ t AT (TAG => 'x') $a$",
        "SELECT ts AT TIME ZONE 'UTC' FROM t at (a, b)",
        "SELECT 'not closed FROM t",
        "/* not closed AT (VERSION => 12)",
        "",
    ],
)
def test_whatever_else_says_at_is_left_alone(text):
    assert read_statement(text).text == text


@pytest.mark.parametrize(
    "clause",
    ["AT (VERSION => '12')", "AT (VERSION => -1)", "AT (TAG => 5)", "AT (TIME => '2026')", "AT (VERSION => 12",
     "AT (VERSION =>", "AT (VERSION => 1 + 1)"],
)  # fmt: skip
def test_a_moment_that_cannot_be_meant_is_refused_with_those_that_can(clause):
    with pytest.raises(UsageError, match=r"AT \(VERSION => 12\), AT \(TAG => 'name'\)"):
        read_statement(f"SELECT * FROM t {clause}")


def test_a_table_of_another_schema_has_no_moments():
    with pytest.raises(UsageError, match="behind a dot"):
        read_statement("SELECT * FROM a.t AT (VERSION => 1)")


def test_a_sample_that_the_engine_would_overlook_is_refused():
    with pytest.raises(UsageError, match="TABLESAMPLE"):
        read_statement("SELECT * FROM t TABLESAMPLE (10 PERCENT)")


@pytest.mark.parametrize(
    ("text", "whole", "left"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1"], " SELECT 2"),
        ("SELECT ';' -- ; no\n, \";\" /* ; */;\n", ["SELECT ';' -- ; no\n, \";\" /* ; */"], "\n"),
        ("SELECT 'open; still", [], "SELECT 'open; still"),
        (";;  ;", [], ""),
    ],
)
def test_statements_end_with_semicolons_that_are_not_inside_anything(text, whole, left):
    assert split_statements(text) == (whole, left)
