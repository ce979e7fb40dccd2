"""Settings that are lists of columns."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import Code, DamagedError, UsageError
from lakebed.model.settings import Described, Settings, describe, in_force, validate
from tests.raising import raises


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


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("split_bytes", "4GB", 4 * 10**9),
        ("split_bytes", "4 GiB", 4 * 2**30),
        ("split_bytes", "1.5kib", 1536),
        ("split_bytes", "1e6", 1_000_000),
        ("split_bytes", "2_000", 2_000),
        ("split_rows", "1e6", 1_000_000),
        ("history_s", "7d", 604_800),
        ("history_s", "12h", 43_200),
        ("history_s", "1.5 h", 5_400),
        ("history_s", "90s", 90),
        ("bloom_fpp", "1e-2", 0.01),
        ("join_share", ".25", 0.25),
    ],
)
def test_a_text_is_a_number_with_a_unit(name, text, value):
    assert validate({name: text}) == {name: value}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("split_bytes", "4d"),
        ("history_s", "7GB"),
        ("split_rows", "5GB"),
        ("split_bytes", "0.3 B"),
        ("split_bytes", "1.0000001kb"),
        ("split_bytes", "1e9999999999"),
        ("split_bytes", "GB"),
        ("history_s", "1d12h"),
        ("bloom_fpp", "nan"),
        ("split_rows", ""),
    ],
)
def test_a_unit_of_something_else_or_a_part_of_a_unit_is_refused(name, text):
    with raises(Code.SETTING_INVALID) as caught:
        validate({name: text})
    assert name in str(caught.value)
    assert "such as" in str(caught.value) or "must lie" in str(caught.value) or name in ("split_rows", "bloom_fpp")


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.sampled_from(["b", "KB", "MB", "GB", "kib", "MiB", "GiB"]))
def test_units_agree_with_their_powers(number, unit):
    size = number * (1024 if "i" in unit else 1000) ** "bkmg".index(unit[0].lower())
    if 1024 <= size <= 2**50:
        assert validate({"split_bytes": f"{number}{unit}"}) == {"split_bytes": size}


NUMBERS = [one for one in describe() if one.minimum is not None]


@st.composite
def set_numbers(draw: st.DrawFn) -> tuple[Described, int | float]:
    """A setting and a value of it, often a whole number of a unit."""
    setting = draw(st.sampled_from(NUMBERS))
    if isinstance(setting.default, float):
        return setting, draw(st.floats(setting.minimum, setting.maximum))
    unit = draw(st.sampled_from([1, 60, 1000, 1024, 3600, 86_400, 10**6, 2**20, 10**9, 2**30]))
    number = draw(st.integers(int(setting.minimum), int(setting.maximum)))
    return setting, max(int(setting.minimum), number // unit * unit)


@given(set_numbers())
def test_a_value_as_it_is_typed_is_the_same_value(case):
    setting, value = case
    assert validate({setting.name: setting.typed(value)}) == {setting.name: value}


def test_values_are_shown_with_their_units():
    by_name = {one.name: one for one in describe()}
    shown = {
        ("split_bytes", 4 * 2**30): ("4 GiB", "4GiB"),
        ("split_bytes", 5_000_000): ("5 MB", "5MB"),
        ("split_bytes", 123_457): ("123,457 bytes", "123457"),
        ("history_s", 604_800): ("7 d", "7d"),
        ("history_s", 0): ("0 seconds", "0"),
        ("history_s", 61): ("61 seconds", "61"),
        ("split_rows", 50_000_000): ("50,000,000 rows", "50000000"),
        ("bloom_fpp", 0.001): ("0.001", "0.001"),
        ("compaction_ratio", 3.0): ("3.0", "3.0"),
        ("publish", "iceberg"): ("iceberg", "iceberg"),
    }
    for (name, value), texts in shown.items():
        assert (by_name[name].shown(value), by_name[name].typed(value)) == texts, name
