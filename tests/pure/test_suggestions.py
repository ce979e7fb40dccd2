"""Which names an unknown one resembles."""

from __future__ import annotations

import pytest

from lakebed.model.wording import did_you_mean, nearest


@pytest.mark.parametrize(
    ("name", "names", "found"),
    [
        ("reading", ["prices", "readings"], ["readings"]),
        ("Reading", ["reading", "readings"], ["reading", "readings"]),
        ("form", ["to", "from", "format-of-all"], ["from"]),
        ("colour", ["prices", "readings"], []),
        ("x", [], []),
        ("rows", [f"row{n}" for n in range(9)], ["row0", "row1", "row2"]),
    ],
)
def test_the_names_that_are_most_alike(name, names, found):
    assert nearest(name, names) == found


def test_the_end_of_a_message():
    assert did_you_mean("form", ["from", "to"]) == "; did you mean 'from'?"
    assert did_you_mean("zebra", ["from", "to"]) == ""
