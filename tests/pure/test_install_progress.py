"""What the first installation of a checkout shows of the lines of pip."""

import re
from pathlib import Path

from scripts.install_locked import EACH, progress

ROOT = Path(__file__).parents[2]


def pip_lines(packages: int) -> list[str]:
    """The lines of a real pip, with as many packages."""
    lines = []
    for number in range(packages):
        lines += [
            f"Collecting name-{number}==1.0 (from -r requirements.lock (line {number}))\n",
            f"  Downloading name_{number}-1.0-py3-none-any.whl (1.2 kB)\n",
        ]
    return [*lines, "Installing collected packages: name-0, name-1\n", "Successfully installed name-0-1.0\n"]


def test_a_terminal_has_one_line_that_is_rewritten_with_each_package() -> None:
    shown = list(progress(pip_lines(3), 5, 40))
    assert [text.replace("\r\x1b[K", "|") for text in shown] == [
        "|  1 of at most 5: name-0==1.0",
        "|  2 of at most 5: name-1==1.0",
        "|  3 of at most 5: name-2==1.0",
        "|  3 packages fetched; unpacking them …\n",
    ]
    assert len(next(progress(pip_lines(1), 5, 12)).removeprefix("\r\x1b[K")) == 11


def test_a_log_has_a_line_every_twenty_packages_and_no_control_characters() -> None:
    shown = "".join(progress(pip_lines(2 * EACH + 1), 100, None))
    assert shown == (
        "  20 of at most 100 packages fetched\n"
        "  40 of at most 100 packages fetched\n"
        "  41 packages fetched; unpacking them …\n"
    )


def test_packages_that_are_there_count_too() -> None:
    assert len(list(progress(["Requirement already satisfied: a==1 in ./x (1)\n"] * 20, 20, None))) == 1


def test_the_first_installation_of_a_checkout_is_shown() -> None:
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("$(STAMP): pyproject.toml")[2].partition("\n\n")[0]
    assert re.findall(r"install_locked\.py (\S+)", recipe) == ["requirements.lock"]
