"""How pages write numbers, sizes and times: each in one form."""

from __future__ import annotations

import re
from importlib.resources import files

import pyarrow as pa
import pytest

from lakebed.read.drawing import pictures
from lakebed.read.drawing.key_space import KeySpace
from lakebed.server.web.pages import rendering

SHEET = files("lakebed.server.web.pages").joinpath("static", "style.css").read_text("utf-8")
PAIR = r"light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)"
FIGURES = ("rows", "bytes", "files", "runs")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, rendering.NONE), (0, "0"), (999, "999"), (36_000, "36,000"), (999_999, "999,999"), (1_000_000, "1M"),
        (12_345_678, "12.3M"), (999_499_999, "999M"), (2_500_000_000, "2.5G"), (-1_234, "-1,234"),
    ],
)  # fmt: skip
def test_an_amount_has_all_digits_below_a_million_and_three_above(given, text):
    assert rendering.number(given) == text


@pytest.mark.parametrize(
    ("added", "removed", "text"),
    [
        (0, 0, ""),
        (3, 0, "+3"),
        (0, 2, "\N{MINUS SIGN}2"),
        (36_000, 4, "+36,000 \N{MINUS SIGN}4"),
        (0, None, "\N{MINUS SIGN}?"),
    ],
)
def test_a_change_has_its_signs(added, removed, text):
    assert rendering.change(added, removed) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00004, "40 µs"), (0.0085, "8.5 ms"), (0.85, "850 ms"), (1.5, "1.5 s"), (59, "59 s"), (90, "2 min")],
)
def test_a_time_is_in_the_unit_that_suits(seconds, text):
    assert rendering.period(seconds) == text


def test_no_template_formats_a_number_in_a_way_of_its_own():
    """Shares in percent are rounded where they stand: nothing else is."""
    folder = files("lakebed.server.web.pages").joinpath("templates")
    for template in folder.iterdir():
        text = re.sub(r"\(100 \* [^{}]*?\)\|round\|int \}\}%", "", template.read_text("utf-8"))
        assert not re.search(r"\|round|\|format|\|int\b|%\.", text), template.name


def test_pages_and_pictures_have_the_same_scale_of_colours():
    pairs = re.findall(rf"--c[0-5]: {PAIR}", SHEET)
    drawing = pictures.partitions_picture(KeySpace.of_rows(1, pa.table({name: [1] for name in FIGURES})))
    drawn = re.findall(r"\.c[0-5]\{fill:light-dark\((#[0-9a-f]{6}),(#[0-9a-f]{6})\)", drawing.svg)
    assert len(pairs) == 6
    assert pairs == drawn


def luminance(colour: str) -> float:
    """By the formula of WCAG 2."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("step", range(6))
def test_a_label_can_be_read_on_every_colour(step, scheme):
    (cell,) = re.findall(rf"--c{step}: {PAIR}", SHEET)
    rules = re.findall(rf"^(\.label.*?) \{{.*fill: {PAIR}", SHEET, re.MULTILINE)
    of_step = [colours for selector, *colours in rules if f".on{step} " in selector or ".on" not in selector]
    text = of_step[-1]
    dark, light = sorted(luminance(colour[scheme]) for colour in (cell, text))
    assert (light + 0.05) / (dark + 0.05) >= 4.5
