"""One run of the command line: parse, call, render, and the exit code.

What Lakebed raises on purpose becomes one line on stderr and an exit code that says what to do about it; only a fault
of Lakebed's own shows a traceback.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

import lakebed
from lakebed import errors
from lakebed.cli.alter import add_alter
from lakebed.cli.arguments import Parser, add_global_options, with_verb
from lakebed.cli.interrupts import INTERRUPTED, ignore_interrupts
from lakebed.cli.log import add_history, add_log, add_verify
from lakebed.cli.maintenance import add_maintenance
from lakebed.cli.render import Output, json_text, plain
from lakebed.cli.reports import add_report
from lakebed.cli.requests import WITHDRAW, add_requests
from lakebed.cli.rows import add_rows
from lakebed.cli.settings import add_settings
from lakebed.cli.sql import add_sql
from lakebed.cli.tables import add_init, add_table
from lakebed.cli.tags import add_tags
from lakebed.cli.transfer import add_transfer

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CODES = {
    0: "done, also when the reader of stdout went away (`| head`)",
    1: "a fault of Lakebed's own; shows a traceback",
    2: "the request cannot mean anything, or the name is taken",
    3: "data: rows, keys or stored bytes are not as they must be, or the table refused the change",
    4: "no such instance, table or file",
    5: "storage: unreachable, full or forbidden, or other writers kept winning; nothing was committed",
    6: "unknown: it may have been committed; repeat it with the same request key",
    130: "interrupted (Ctrl-C, SIGTERM); stderr says what was committed",
}
"""A promise to scripts."""

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


def build_parser() -> Parser:
    """The whole grammar of the command line."""
    parser = Parser(
        prog="lakebed",
        description="Very large tables of keyed rows, as sorted Parquet files on object storage.",
        usage="lakebed [--instance URL] [--json] COMMAND …",
        epilog="`lakebed COMMAND --help` says more. Data go to stdout, messages to stderr.",
    )
    parser.add_argument("--version", action="version", version=f"lakebed {lakebed.__version__}")
    add_global_options(parser, after=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, title="commands", prog=parser.prog)
    add_init(commands)
    add_table(commands)
    add_alter(commands)
    add_settings(commands)
    add_rows(commands)
    add_sql(commands)
    add_transfer(commands)
    add_requests(commands)
    add_maintenance(commands)
    add_report(commands)
    add_tags(commands)
    add_history(commands)
    add_log(commands)
    add_verify(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without ``argv``, as all that this process is there for."""
    if argv is not None:
        return _run(argv)
    _speak_utf8()
    code = _run(sys.argv[1:])
    ignore_interrupts()
    return code


def _run(words: Sequence[str]) -> int:
    # Known before parsing, for an error in parsing is told in the same way as any other.
    as_json = "--json" in words
    try:
        arguments = build_parser().parse_args(with_verb(words, *WITHDRAW))
        arguments.run(arguments, Output(as_json=arguments.json))
        sys.stdout.flush()
    except errors.Error as error:
        return _told(error, as_json=as_json)
    except BrokenPipeError:
        # Python would find the pipe broken once more when it flushes on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # stdout on a full disk, say; the library tells of its own
        return _told(errors.StorageError(str(error)), as_json=as_json)
    except KeyboardInterrupt as stop:
        notes: list[str] = getattr(stop, "__notes__", [])
        print(": ".join(["lakebed: interrupted", *notes[:1]]), file=sys.stderr)
        return INTERRUPTED
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    return 0


def exit_code(error: errors.Error) -> int:
    """What the process exits with after this error."""
    return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))


def _told(error: errors.Error, *, as_json: bool) -> int:
    print(f"lakebed: {error.message}", file=sys.stderr)
    if as_json:
        facts = {name: plain(value) for name, value in error.facts.items()}
        print(json_text({"error": {**facts, "kind": error.kind, "message": error.message}}), file=sys.stderr)
    return exit_code(error)


def _speak_utf8() -> None:
    """JSON is UTF-8 whatever the locale; text shows what it can and escapes the rest."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
