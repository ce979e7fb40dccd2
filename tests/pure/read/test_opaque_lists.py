"""Lists of which the optimizer would make one are hidden from it."""

from __future__ import annotations

import pytest

from lakebed.engine.workarounds.opaque_lists import with_opaque_lists


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k IN (1, NULL)", "greatest(k IN (1, NULL))"),
        ("k NOT IN (1) AND NOT k in (2)", "greatest(k NOT IN (1)) AND NOT greatest(k in (2))"),
        ("t.k + 1 IN (f(1), 2) OR x = t.k + 1 IN (3)",
         "greatest(t.k + 1 IN (f(1), 2)) OR x = greatest(t.k + 1 IN (3))"),
        ("((k IN (1)) IN (TRUE, NULL))", "(greatest((k IN (1)) IN (TRUE, NULL)))"),
        ("CASE WHEN k IN (NULL) THEN 1 END IN (1, NULL)",
         "greatest(CASE WHEN greatest(k IN (NULL)) THEN 1 END IN (1, NULL))"),
        ("SELECT f(s IN ('a', NULL)) FROM t WHERE f(k, 2)[1] NOT IN (1, NULL) ORDER BY 1",
         "SELECT f(greatest(s IN ('a', NULL))) FROM t WHERE greatest(f(k, 2)[1] NOT IN (1, NULL)) ORDER BY 1"),
        # One list of each operand, without a null.
        ("k IN (1, 2) AND s NOT IN ('a')", "k IN (1, 2) AND s NOT IN ('a')"),
        # No list.
        ("k IN (SELECT NULL) OR k IN (SELECT 1)", "k IN (SELECT NULL) OR k IN (SELECT 1)"),
        ("s = ' IN (NULL)' AND \"in\" (NULL)", "s = ' IN (NULL)' AND \"in\" (NULL)"),
        ("IN (NULL)", "IN (NULL)"),
        ("k IN (1, NULL", "k IN (1, NULL"),
    ],
)  # fmt: skip
def test_such_lists_are_hidden(text, wanted):
    assert with_opaque_lists(text) == wanted
