"""Where one statement ends and the next begins."""

from __future__ import annotations

import pytest

from lakebed.engine.tokens import split_statements


@pytest.mark.parametrize(
    ("text", "whole", "left"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1"], " SELECT 2"),
        ("SELECT ';' -- ; no\n, \";\" /* ; */;\n", ["SELECT ';' -- ; no\n, \";\" /* ; */"], "\n"),
        ("SELECT 'open; still", [], "SELECT 'open; still"),
        ('SELECT "not; closed', [], 'SELECT "not; closed'),
        (
            "SELECT E'it\\'s;', $$ ; $$, $a$ $$ ; $a$; /* not closed ;",
            ["SELECT E'it\\'s;', $$ ; $$, $a$ $$ ; $a$"],
            " /* not closed ;",
        ),
        (";;  ;", [], ""),
    ],
)
def test_statements_end_with_semicolons_that_are_not_inside_anything(text, whole, left):
    assert split_statements(text) == (whole, left)
