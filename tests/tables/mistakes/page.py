"""The page of mistakes and their messages.

Written by ``python -m tests.tables.mistakes.page > tests/tables/mistakes/mistakes.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from tests.tables.mistakes import lake, python, shell

OPENING = """\
# Mistakes, and what Lakebed says

This page is generated: `python -m tests.tables.mistakes.page > tests/tables/mistakes/mistakes.md`. Every message is to
say what is wrong, with which value, and what to do; a change of one shows here.

The mistakes are made in the folder `/home/ann`, where `lake` is an instance with the tables `readings` and `prices`."""


def page() -> str:
    with lake.folder() as home:
        return "\n\n".join([OPENING, *_on_the_command_line(home), *_in_python(home)]) + "\n"


def _on_the_command_line(home: Path) -> Iterator[str]:
    yield "## On the command line"
    for title, answers in _answers(shell.MISTAKES, lambda line: lake.said(home, line)):
        yield f"### {title}"
        yield from (f"```\n$ {line}\n{answer}```" for line, answer in answers)


def _in_python(home: Path) -> Iterator[str]:
    yield "## In Python"
    for title, answers in _answers(python.MISTAKES, lambda code: lake.without(home, raised_by(code))):
        yield f"### {title}"
        yield from (f"```\n>>> {code}\n{answer}\n```" for code, answer in answers)


def raised_by(code: str) -> str:
    """The error that a statement ends with, as the last line of its traceback."""
    instance = lakebed.open("lake")
    names: dict[str, Any] = {"lakebed": lakebed, "lake": instance, "table": instance.table("readings"), "pa": pa}
    try:
        exec(code, names)
    except Exception as error:  # noqa: BLE001 - shown, whatever it is
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return f"{module}{kind.__qualname__}: {error}"
    raise AssertionError(f"{code} is no mistake")


def _answers(mistakes: Mapping[str, Sequence[str]], answer: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for title, made in mistakes.items():
        yield title, [(one, answer(one)) for one in made]


if __name__ == "__main__":
    sys.stdout.write(page())
