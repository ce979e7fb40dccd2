"""One run of the command line: parse, call, render, and the exit code.

An error of Lakebed becomes one line on stderr and an exit code that says what to do about it. Only a bug in Lakebed
shows a traceback.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lakebed import errors
from lakebed.cli.commands import LAKEBED
from lakebed.cli.grammar import COMPLETION_VARIABLE, Invocation
from lakebed.cli.interrupts import INTERRUPTED, ignore_interrupts

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CODES = {
    0: "done, also when the reader of stdout went away (`| head`)",
    1: "a bug in Lakebed; shows a traceback",
    2: "usage: the request is invalid, or the name is taken",
    3: "data: rows, keys or stored bytes are invalid, or the table refused the change",
    4: "no such instance, table or file",
    5: "storage: unreachable, full or forbidden, or other writers kept winning; nothing was committed",
    6: "unknown: it may have been committed; repeat it with the same request key",
    130: "interrupted (Ctrl-C, SIGTERM); stderr says what was committed",
}
"""A promise to scripts."""

HELP_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "terminal_width": 100}
"""A fixed width: help reads the same in a terminal, a pipe and a test."""

_EXIT_CODES: tuple[tuple[type[errors.Error], int], ...] = (
    (errors.SchemaMismatchError, 3),
    (errors.BadKeyError, 3),
    (errors.UsageError, 2),
    (errors.ExistsError, 2),
    (errors.NotFoundError, 4),
    (errors.StorageError, 5),
    (errors.ContentionError, 5),
    (errors.UnknownOutcomeError, 6),
    (errors.Error, 3),
)
"""The first class that fits decides."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without ``argv``, that of this process."""
    if argv is not None:
        return _run(argv)
    _use_utf8()
    if COMPLETION_VARIABLE in os.environ:
        from lakebed.cli.completion import complete

        return complete(LAKEBED)
    code = _run(sys.argv[1:])
    ignore_interrupts()
    return code


def _run(words: Sequence[str]) -> int:
    # Known before parsing: errors in parsing are printed as any other.
    as_json = "--json" in words
    try:
        with LAKEBED.make_context("lakebed", list(words), obj=Invocation(), **HELP_SETTINGS) as context:
            LAKEBED.invoke(context)
        sys.stdout.flush()
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "lakebed"
        message = f"{error.format_message().rstrip('.')}; see `{command} --help`"
        return _print_error(errors.UsageError(message), as_json=as_json)
    except click.exceptions.Exit as stop:  # --help and --version
        return stop.exit_code
    except errors.Error as error:
        return _print_error(error, as_json=as_json)
    except BrokenPipeError:
        # Python would find the pipe broken once more when it flushes on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # stdout on a full disk, say; the library raises errors of its own
        return _print_error(errors.StorageError(str(error)), as_json=as_json)
    except KeyboardInterrupt as stop:
        notes: list[str] = getattr(stop, "__notes__", [])
        print(": ".join(["lakebed: interrupted", *notes[:1]]), file=sys.stderr)
        return INTERRUPTED
    return 0


def exit_code(error: errors.Error) -> int:
    """What the process exits with after this error."""
    return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))


def _print_error(error: errors.Error, *, as_json: bool) -> int:
    print(f"lakebed: {error.message}", file=sys.stderr)
    if as_json:
        from lakebed.cli.render import json_text, plain

        facts = {name: plain(value) for name, value in error.facts.items()}
        print(json_text({"error": {**facts, "kind": error.kind, "message": error.message}}), file=sys.stderr)
    return exit_code(error)


def _use_utf8() -> None:
    """JSON is UTF-8 whatever the locale; text that a stream cannot show is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
