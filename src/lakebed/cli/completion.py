"""``lakebed completion``, and the answers to the shells that its scripts ask."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class, shell_complete

from lakebed.cli.grammar import COMPLETION_VARIABLE, Invocation, command

if TYPE_CHECKING:
    from click import Command


def complete(root: Command) -> int:
    """Answer a shell that asks for completions; returns the exit code."""
    return shell_complete(root, {"obj": Invocation()}, "lakebed", COMPLETION_VARIABLE, os.environ[COMPLETION_VARIABLE])


@command
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]), help="bash, zsh or fish.")
def completion(_: Invocation, *, shell: str) -> None:
    """Print the completion script of a shell.

    bash: add `eval "$(lakebed completion bash)"` to ~/.bashrc.

    zsh: add `eval "$(lakebed completion zsh)"` to ~/.zshrc.

    fish: run `lakebed completion fish > ~/.config/fish/completions/lakebed.fish`.
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(click.get_current_context().find_root().command, {}, "lakebed", COMPLETION_VARIABLE).source())
