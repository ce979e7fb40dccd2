"""Words of other systems are answered with something that is there."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from lakebed.cli.commands import LAKEBED
from lakebed.cli.run import WORDS

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("word", WORDS)
def test_what_a_word_is_answered_with_is_a_command(word: str) -> None:
    context = click.Context(LAKEBED)
    assert LAKEBED.get_command(context, word) is None, "such a command is there"
    first, *rest = WORDS[word].split()
    if first.startswith("--"):
        assert first in {*(option for param in LAKEBED.params for option in param.opts), *context.help_option_names}
        return
    command = LAKEBED.get_command(context, first)
    assert command is not None
    if isinstance(command, click.Group):
        assert command.get_command(context, *rest) is not None
    elif first == "docs":
        assert (DOCS / f"{rest[0]}.md").is_file()
    else:
        assert not rest
