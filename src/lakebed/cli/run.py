"""Runs one command line: parses it, runs the command, and returns the exit code.

An error of Lakebed is printed as one line on stderr; its class decides the exit code. An invalid command line is
explained by the nearest valid word, or by the command that does here what the word does in other systems. Only a bug in
Lakebed shows a traceback.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

import click

from lakebed import errors
from lakebed.cli.commands import COMPLETION_VARIABLE, LAKEBED, complete
from lakebed.cli.interrupts import INTERRUPTED, ignore_interrupts
from lakebed.cli.invocation import Invocation
from lakebed.cli.suggestions import commands_meant, meant_text, options_meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


EXIT_CODES = {
    0: "done, also when the reader of stdout went away (`| head`)",
    1: "a bug in Lakebed; shows a traceback",
    2: "usage: the request is invalid, or the name is taken",
    3: "data: rows, keys or stored bytes are invalid, or the table refused the change",
    4: "no such instance, table or file",
    5: "storage: unreachable, full or forbidden, or other writers kept winning; nothing was committed",
    6: "unknown: it may have been committed; repeat it with the same commit or job id, or look at `lakebed history`",
    130: "interrupted (Ctrl-C, SIGTERM); stderr says what was committed",
}
"""Stable: scripts rely on them."""

HELP_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "terminal_width": 100}
"""A fixed width: help reads the same in a terminal, a pipe and a test."""

_EXIT_CODES: tuple[tuple[type[errors.Error], int], ...] = (
    (errors.SchemaMismatchError, 3),
    (errors.BadKeyError, 3),
    (errors.UsageError, 2),
    (errors.ExistsError, 2),
    (errors.NotFoundError, 4),
    (errors.AccessError, 5),
    (errors.StorageError, 5),
    (errors.ContentionError, 5),
    (errors.UnknownOutcomeError, 6),
    (errors.Error, 3),
)
"""The first class of which the error is an instance decides."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without ``argv``, that of this process."""
    if argv is not None:
        return _run_command(argv)
    _prepare_streams()
    if COMPLETION_VARIABLE in os.environ:
        return complete()
    code = _run_command(sys.argv[1:], owns_process=True)
    ignore_interrupts()
    # Python would traverse every object of all modules several times to end the process.
    gc.freeze()
    return code


def _run_command(words: Sequence[str], *, owns_process: bool = False) -> int:
    invocation = Invocation(owns_process=owns_process)
    try:
        code, outcome = _outcome(words, invocation)
    except Exception as bug:
        document = {"kind": "bug", "code": "bug", "message": f"{type(bug).__name__}: {bug}"}
        _write_report(invocation, 1, {"error": document})
        raise
    return _write_report(invocation, code, outcome)


def _outcome(words: Sequence[str], invocation: Invocation) -> tuple[int, Mapping[str, Any]]:
    """Run the command and print its answer. Returns its exit code, and the outcome as in the report."""
    # Decided before parsing, because errors of parsing are printed as JSON too; so are all, if a profile says so.
    as_json = "--json" in words
    try:
        with LAKEBED.make_context("lakebed", list(words), obj=invocation, **HELP_SETTINGS) as context:
            LAKEBED.invoke(context)
        sys.stdout.flush()
        invocation.log_requests()
    except click.UsageError as error:
        invocation.report_url = invocation.report_url or _value_of("--report", words)
        invocation.profile_name = invocation.profile_name or _value_of("--profile", words)
        with contextlib.suppress(errors.Error):
            invocation.use_profile(formats=False)
        with contextlib.suppress(errors.Error):
            invocation.begin_report()

        refusal = errors.Code.COMMAND_LINE_INVALID(mistake_in(error))
        return _print_error(refusal, invocation, as_json=as_json, hints=hints_of(error))
    except click.exceptions.Exit as stop:  # --help and --version
        return stop.exit_code, {}
    except errors.Error as error:
        return _print_error(error, invocation, as_json=as_json)
    except BrokenPipeError:
        # Python would meet the broken pipe once more when it flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # stdout on a full disk, say; the library raises errors of its own
        unwritten = errors.Code.OUTPUT_NOT_WRITTEN(f"cannot write the output: {error.strerror or error}")
        return _print_error(unwritten, invocation, as_json=as_json)
    except KeyboardInterrupt as stop:
        notes: list[str] = getattr(stop, "__notes__", [])[:1]
        print(": ".join(["lakebed: interrupted", *notes]), file=sys.stderr)
        return INTERRUPTED, {"interrupted": notes[0] if notes else None}
    return 0, {"report": invocation.answer}


def _value_of(option: str, words: Sequence[str]) -> str | None:
    """Return the value of an option among words that may not be parsable; None if it is not there."""
    ours = list(takewhile(lambda word: word != "--", words))
    given = [following for word, following in pairwise(ours) if word == option]
    given += [word.partition("=")[2] for word in ours if word.startswith(f"{option}=")]
    return given[-1] if given else None


def _write_report(invocation: Invocation, code: int, outcome: Mapping[str, Any]) -> int:
    """Complete the report that was begun, if any. Returns the exit code, which is that of an unknown outcome if the
    command did what it should and its report could not be written.
    """
    if invocation.report is None:
        return code
    try:
        invocation.report.write(code, outcome)
    except errors.Error as error:
        print(f"lakebed: cannot write the report to {invocation.report_url}: {error.message}", file=sys.stderr)
        return code or exit_code(errors.Code.REPORT_NOT_WRITTEN(error.message))
    return code


def exit_code(error: errors.Error) -> int:
    """Return the exit code for this error."""
    return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))


def _print_error(
    error: errors.Error, invocation: Invocation, *, as_json: bool, hints: Iterable[str] = ()
) -> tuple[int, Mapping[str, Any]]:
    """Print the error and the hints below it: its exit code, and its document for a report."""
    print("\n".join([f"lakebed: {error.message}", *hints]), file=sys.stderr)
    as_json = as_json or invocation.as_json
    if not as_json and invocation.report is None:
        return exit_code(error), {}
    from lakebed.model.json_values import json_text, plain

    facts = {name: plain(value) for name, value in error.facts.items()}
    document = {"error": {**facts, "kind": error.kind, "code": error.code, "message": error.message}}
    if as_json:
        print(json_text(document), file=sys.stderr)
    return exit_code(error), document


class _Messages(io.FileIO):
    """Stderr that ignores writes after the reader has closed it, such as a JVM that started the command and exited."""

    def write(self, data: Any) -> int:
        """Write; bytes after the reader has closed the stream count as written."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return len(data)


def _prepare_streams() -> None:
    """Write UTF-8 in every locale; characters that cannot be encoded are escaped."""
    if isinstance(sys.stderr, io.TextIOWrapper):
        messages = io.BufferedWriter(_Messages(sys.stderr.fileno(), "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(messages, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def mistake_in(error: click.UsageError) -> str:
    """Return the message: what is wrong, with which word, and which words are meant."""
    match error:
        case click.NoSuchOption():
            return f"no option {error.option_name!r}{meant_text(options_meant(error))}"
        case click.exceptions.NoSuchCommand():
            assert error.ctx is not None
            of = "" if error.ctx.parent is None else f" of `{error.ctx.command_path}`"
            return f"no command {error.command_name!r}{of}{meant_text(commands_meant(error.command_name, error.ctx))}"
        case _:
            message = error.format_message().rstrip(".")
            # Not a first word in capitals, such as KEY.
            return message[:1].lower() + message[1:] if message[1:2].islower() else message


def hints_of(error: click.UsageError) -> Iterator[str]:
    """Return the lines below the message: the usage, the suggested or wrong option, and where to find more."""
    context = error.ctx
    if context is None:
        yield "see `lakebed --help`"
        return
    command = context.command
    if isinstance(command, click.Group):
        if context.parent is not None:
            yield f"commands: {', '.join(command.list_commands(context))}"
    else:
        yield f"usage: {' '.join([context.command_path, *command.collect_usage_pieces(context)])}"
    shown = [param for param in command.params if _is_about(error, param)]
    records = [record for record in (param.get_help_record(context) for param in shown) if record is not None]
    yield from (f"  {name}  {meaning}" for name, meaning in records if meaning)
    if isinstance(error, click.NoSuchOption) and not error.option_name.startswith("--"):
        yield "  a word that begins with a minus sign and is no option comes after `--`"
    yield f"see `{context.command_path} --help`"


def _is_about(error: click.UsageError, param: click.Parameter) -> bool:
    if isinstance(error, click.NoSuchOption):
        return bool({*options_meant(error)} & {*param.opts})
    if isinstance(error, click.BadOptionUsage):
        return error.option_name in param.opts
    return isinstance(error, click.BadParameter) and error.param is param
