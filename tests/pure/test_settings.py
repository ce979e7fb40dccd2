"""Settings that are lists of columns."""

from __future__ import annotations

import pytest

from lakebed.errors import Code, DamagedError, UsageError
from lakebed.model.settings import Settings, in_force, validate


@pytest.mark.parametrize(
    ("text", "names"),
    [("", set()), (",", set()), ("*", {"*"}), ("a", {"a"}), (' a , "b,c",d"e', {"a", "b,c", 'd"e'}), ("a,a", {"a"})],
)
def test_a_list_of_columns_is_a_record_of_csv(text, names):
    stored = validate({"statistics_off": text})
    assert in_force({}, stored).columns_without_statistics == names


def test_none_restores_the_default():
    assert validate({"statistics_off": None}) == {"statistics_off": None}
    assert Settings().columns_without_statistics == frozenset()


@pytest.mark.parametrize("value", [1, True, ["a"], "a\nb", "a\rb"])
def test_what_is_no_list_of_columns_is_refused(value):
    with pytest.raises(UsageError, match="statistics_off must be names of columns, separated by commas, not") as raised:
        validate({"statistics_off": value})
    assert raised.value.code is Code.SETTING_INVALID


def test_a_stored_number_is_damage():
    with pytest.raises(DamagedError, match="not a valid text"):
        in_force({}, {"statistics_off": 3})
