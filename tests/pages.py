"""The documentation as tests read it: the blocks of code on a page, what stands beside them, and command lines.

Core types: :class:`Block`. :func:`run` executes Python and compares each value with the literal in the comment beside
it; :func:`command_lines` finds what a shell block gives to Lakebed; :func:`parse` checks that by the command line's own
grammar, and runs nothing.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lakebed.cli.commands import LAKEBED
from lakebed.cli.invocation import Invocation
from lakebed.cli.run import HELP_SETTINGS

ROOT = Path(__file__).parents[1]
APPLICATION = ("$(lakebed --application)", "s3://bucket/lakebed_main.py", "dbfs:/lakebed_main.py")
"""How the pages name the application of ``spark-submit``."""

_FENCE = re.compile(r"^( *)```(\w*)[^`\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n(?= {4}))+)")


@dataclass(frozen=True, slots=True)
class Block:
    """Code on a page; ``line`` is the number of its first line, and an indented block has the language ``""``."""

    page: str
    line: int
    language: str
    text: str

    def replace(self, *changes: tuple[str, str]) -> Block:
        """The block with other texts in it: addresses that there are where the test runs."""
        text = self.text
        for old, new in changes:
            assert old in text, f"{self.page}: no {old!r} in the block at line {self.line}"
            text = text.replace(old, new)
        return Block(self.page, self.line, self.language, text)


def pages() -> list[str]:
    """Every page that a reader of the code is sent to, relative to the root."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    kept = [path.relative_to(ROOT).as_posix() for path in found if path.name != "CHANGELOG.md"]
    return sorted(name for name in kept if not name.startswith("docs/decisions/"))


def issue_forms() -> list[str]:
    """The forms by which issues are written, relative to the root."""
    forms = (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")
    return sorted(path.relative_to(ROOT).as_posix() for path in forms)


def text_of(page: str) -> str:
    """The page's Markdown."""
    return (ROOT / page).read_text("utf-8")


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The blocks of a page in order, or those of one language."""
    text = text_of(page)
    # In a list a block is indented.
    found = [
        Block(page, _line(text, at.start(3)), at[2], re.sub(f"^{at[1]}", "", at[3], flags=re.MULTILINE))
        for at in _FENCE.finditer(text)
    ]
    # Without the fenced ones, but with as many characters and lines.
    rest = _FENCE.sub(lambda at: re.sub(r"[^\n]", ".", at[0]), text)
    found += [
        Block(page, _line(text, at.start(1)), "", re.sub(r"^ {4}", "", at[1], flags=re.MULTILINE))
        for at in _INDENTED.finditer(rest)
    ]
    found.sort(key=lambda block: block.line)
    return [block for block in found if language is None or block.language == language]


def is_fenced(block: Block) -> bool:
    """Whether the block stands between fences, not in an indented paragraph."""
    return text_of(block.page).splitlines()[block.line - 2].lstrip().startswith("```")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# -- Python -----------------------------------------------------------------------------------------------------


def run(block: Block, names: dict[str, Any]) -> int:
    """Execute a block of Python in ``names``; returns how many values were compared with what stands beside them."""
    lines = block.text.splitlines()
    compared = 0
    for statement in ast.parse(block.text, block.page).body:
        beside = _literal_beside(lines, statement)
        ast.increment_lineno(statement, block.line - 1)
        if isinstance(statement, ast.Expr):
            found = eval(compile(ast.Expression(statement.value), block.page, "eval"), names)
            if beside is not None:
                assert found == beside[0], f"{block.page}:{statement.lineno}"
                compared += 1
        else:
            exec(compile(ast.Module([statement], []), block.page, "exec"), names)
    return compared


def _literal_beside(lines: list[str], statement: ast.stmt) -> tuple[Any] | None:
    """The literal in the comment behind a statement, or on the line below it."""
    assert statement.end_lineno is not None
    last = lines[statement.end_lineno - 1].encode()[statement.end_col_offset :].decode()
    below = lines[statement.end_lineno] if statement.end_lineno < len(lines) else ""
    for comment in (last.strip(), below):
        if comment.startswith("# "):
            try:
                return (ast.literal_eval(comment.removeprefix("# ")),)
            except (SyntaxError, ValueError):
                continue
    return None


# -- command lines ----------------------------------------------------------------------------------------------


def command_lines(block: Block) -> Iterator[list[str]]:
    """The words of each command that a block gives to Lakebed, by its own name or through what submits to Spark."""
    for line in shell_lines(block.text):
        if line.startswith("lakebed "):
            yield shlex.split(line, comments=True)[1:]
        elif any(name in line for name in APPLICATION) and not line.startswith("aws s3 cp"):
            yield _submitted(shlex.split(line))


def shell_lines(text: str) -> Iterator[str]:
    """Whole commands: a backslash or an open quote continues one on the next line."""
    command = ""
    for line in text.splitlines():
        command = f"{command}\n{line}" if command else line.removeprefix("$ ")
        if line.endswith("\\"):
            command = command.removesuffix("\\").rstrip()
        elif command.count("'") % 2 == 0 or not command.startswith(("aws", "databricks")):
            yield command
            command = ""
    assert not command, command


def _submitted(words: list[str]) -> list[str]:
    """What comes behind the application, wherever the submitting program has it."""
    for place, word in enumerate(words):
        if word.startswith("{"):
            return _arguments_in(json.loads(word))
        if "Args=[" in word:
            inside = word.partition("Args=[")[2].partition("]")[0].split(",")
            return _submitted(inside)
        if word in APPLICATION:
            rest = words[place + 1 :]
            return rest[rest.index("--") + 1 :] if "--" in rest else rest
    raise AssertionError(f"no application in {words}")


def _arguments_in(document: Any) -> list[str]:
    """The list of arguments in a job's document, which has one."""
    inner = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    if isinstance(document, dict):
        for name in ("entryPointArguments", "parameters"):
            if name in document:
                return list(document[name])
    return next((found for one in inner if (found := _arguments_in(one))), [])


def parse(words: list[str]) -> str:
    """The path of the command that these words are, parsed with its options and not run. Raises click.UsageError."""
    command: click.Command = LAKEBED
    # A command keeps the names of its help option from its first context.
    context = command.make_context("lakebed", list(words), obj=Invocation(), **HELP_SETTINGS)
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        context = command.make_context(name, rest, parent=context)
    return context.command_path.removeprefix("lakebed ")


def mentions(page: str) -> Iterator[tuple[int, list[str]]]:
    """Commands in the running text of a page, which are often no whole ones: the line and the words."""
    prose = _FENCE.sub(lambda at: re.sub(r"[^\n]", "", at[0]), text_of(page))
    for at in re.finditer(r"`lakebed ([a-z-][^`\n]*(?:\n[^`\n]+)?)`", prose):
        yield _line(prose, at.start()), at[1].split()
