"""Types of options and arguments: ``NAME=VALUE``, numbers, numbers of bytes, and keys of several words.

A word of a key may be a negative number, which Click would take for an option. :class:`lakebed.cli.grammar.Command`
hides its minus sign, and joins the words of an option's key, with :data:`MARK`; the types take it away again.
"""

from __future__ import annotations

import re

import click

MARK = "\0"
"""No argument of a process contains it."""


def name_value(text: str) -> tuple[str, str]:
    """Return the parts of ``NAME=VALUE``; the value may hold further equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE.")
    return name, value


def byte_count(text: str) -> int:
    """Return a number of bytes, such as ``512MiB``, ``2GiB`` or ``1000000``."""
    found = re.fullmatch(r"([0-9]{1,15})\s*(|KiB|MiB|GiB|TiB)", text.strip(), re.ASCII)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a number of bytes, such as 536870912 or 512MiB.")
    return int(found[1]) << 10 * ("", "KiB", "MiB", "GiB", "TiB").index(found[2])


class WholeNumber(click.IntRange):
    """Click's range of integers, under the name that its messages are to use."""

    name = "whole number"


KEY_WORD: click.ParamType[str] = click.types.FuncParamType(lambda text: text.removeprefix(MARK))
"""A positional word of a key; may be a negative number."""
KEY: click.ParamType[tuple[str, ...]] = click.types.FuncParamType(lambda text: tuple(text.split(MARK)))
"""An option whose value is the words of a key: all words up to the next option."""
