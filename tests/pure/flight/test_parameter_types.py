"""The types with which parameters are announced to drivers."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.server.flight.statement_runs import parameter_types

TABLES = {
    "flights": lakebed.Schema({"tail": "string", "day": "date32"}, {}, {"n": "int64", "a b": "int32"}),
    "others": lakebed.Schema({"tail": "string"}, {}, {"n": "double", "only": "int16"}),
}


@pytest.mark.parametrize(
    ("query", "types"),
    [
        ("SELECT * FROM flights", []),
        ("SELECT * FROM flights WHERE n = ?", ["int64"]),
        ("SELECT * FROM flights AS f WHERE f.n >= ? AND f.day <> ?", ["int64", "date32[day]"]),
        ("SELECT * FROM flights WHERE ? < flights.n", ["int64"]),
        ('SELECT * FROM "flights" WHERE "a b" != $1', ["int32"]),
        ("SELECT * FROM flights WHERE n BETWEEN ? AND ? AND tail NOT IN (?, 'x', ?)", ["int64"] * 2 + ["string"] * 2),
        ("SELECT * FROM flights WHERE n NOT BETWEEN ? AND ?", ["int64"] * 2),
        ("SELECT * FROM flights WHERE n IN ($2, $1) LIMIT $3 OFFSET $4", ["int64"] * 4),
        ("SELECT * FROM flights WHERE n = $1 OR day = $1", ["string"]),
        ("SELECT * FROM flights WHERE n = $1 OR n > $1", ["int64"]),
        ("SELECT * FROM flights WHERE n = $3", ["string", "string", "int64"]),
        ("SELECT * FROM flights WHERE tail LIKE ? AND n + ? > 3 AND abs(?) = 1", ["string"] * 3),
        # A name that means several types, and one of a table that is not read.
        ("SELECT * FROM flights, others WHERE n = ? AND only = ?", ["string", "int16"]),
        ("SELECT * FROM flights WHERE only = ?", ["string"]),
        ("SELECT '?' -- ?\n FROM flights WHERE n = ?", ["int64"]),
        ("SELECT ?", ["string"]),
        ("?", ["string"]),
    ],
)
def test_a_parameter_has_the_type_of_the_column_that_it_is_compared_with(query, types):
    assert [str(kind) for kind in parameter_types(query, TABLES)] == types
