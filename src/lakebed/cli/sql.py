"""``lakebed sql``: a query in SQL, or a prompt for many.

At a terminal without a statement there is a prompt, with history and completion where prompt_toolkit is installed
(``pip install "lakebed[shell]"``). Otherwise statements are read from stdin. In both a statement ends with a
semicolon; at a prompt an error is told, and the next statement may do better.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.checks import check_seconds, shown
from lakebed.cli import arguments as args
from lakebed.cli.interrupts import at_a_prompt
from lakebed.errors import Error, UsageError
from lakebed.query.statement import split_statements

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    import lakebed
    from lakebed.cli.render import Output

_PROMPT = "lakebed> "
_MORE = "     ... "
_WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "USING", "AND",
    "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "AS", "WITH", "UNION ALL", "DISTINCT",
    "count(", "sum(", "min(", "max(", "avg(", "CAST(", "AT (VERSION => ", "AT (TAG => '", "AT (TIMESTAMP => '",
    "DESCRIBE", "EXPLAIN",
)  # fmt: skip


def add_sql(commands: args.Commands) -> None:
    """``lakebed sql``."""
    parser = args.add_command(
        commands,
        "sql",
        "print the rows of a query over any tables, or ask for queries",
        _sql,
        more="SQL is DataFusion's, and only reads. Conditions on a prefix of the row key decide what is read.\n"
        "A table as it was: FROM flights AT (VERSION => 12), AT (TAG => 'x'), AT (TIMESTAMP =>\n"
        "'2026-01-31T12:00:00Z'). Names are taken as they are written; those that are not plain words go in\n"
        'double quotes: "my-table". Rows have no order without ORDER BY. Without a STATEMENT: a prompt, or\n'
        "statements from stdin, each ended by a semicolon.",
    )
    parser.add_argument("statement", metavar="STATEMENT", nargs="?", help="one query")
    parser.add_argument("--csv", action="store_true", help="print CSV, with a heading")
    parser.add_argument(
        "--memory-limit",
        metavar="BYTES",
        help="run each statement in a process that is killed beyond it: 512MiB, 2GiB or plain bytes",
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", help="run each statement in a process that is killed after so long"
    )


def _sql(arguments: argparse.Namespace, out: Output) -> None:
    if arguments.csv and out.as_json:
        raise UsageError("--csv or --json, not both")
    limits = _limits(arguments)
    lake = args.open_instance(arguments)

    def answer(statement: str) -> None:
        with lake.sql(statement, **limits) as reader:
            _print(reader, out, as_csv=arguments.csv)

    if arguments.statement is not None:
        answer(arguments.statement)
    elif sys.stdin.isatty():
        out.note(f"tables: {', '.join(lake.tables()) or 'none yet'}. A query ends with ; and the prompt with Ctrl-D")
        with at_a_prompt():
            _converse(_asking(lake, out), answer, out)
    else:
        for statement in _statements(sys.stdin):
            answer(statement)


def _limits(arguments: argparse.Namespace) -> dict[str, Any]:
    given = arguments.timeout
    try:
        timeout_s = None if given is None else float(given)
    except ValueError:
        raise UsageError(f"--timeout {shown(given)}: must be a number of seconds, 0 or more") from None
    check_seconds("--timeout", timeout_s)
    limit = arguments.memory_limit
    return {
        "memory_limit_bytes": None if limit is None else args.byte_count(limit, "--memory-limit"),
        "timeout_s": timeout_s,
    }


def _print(reader: pa.RecordBatchReader, out: Output, *, as_csv: bool) -> None:
    names = reader.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if out.as_json and twice:
        raise UsageError(f"two columns are named {', '.join(twice)}; give one of them another name with AS")
    if as_csv:
        out.csv(reader, names)
    elif not out.rows(reader, names):
        out.note("no rows")


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """What stands between semicolons; the last one may do without."""
    left = ""
    for line in lines:
        whole, left = split_statements(left + line)
        yield from whole
    if left.strip():
        yield left


def _converse(ask: Callable[[str], str], answer: Callable[[str], None], out: Output) -> None:
    """Ask for statements until there are no more. Ctrl-C forgets what was typed, or ends a query."""
    left = ""
    while True:
        try:
            line = ask(_MORE if left.strip() else _PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            left = ""
            continue
        if not left.strip() and line.strip().lower().rstrip(";") in ("exit", "quit"):
            return
        whole, left = split_statements(f"{left}{line}\n")
        for statement in whole:
            try:
                answer(statement)
            except Error as error:
                out.note(f"lakebed: {error.message}")
            except KeyboardInterrupt:
                out.note("lakebed: interrupted")


def _asking(lake: lakebed.Instance, out: Output) -> Callable[[str], str]:
    """How a line is asked for."""
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.history import FileHistory
    except ImportError:
        out.note('history and completion come with pip install "lakebed[shell]"')
        return input
    columns = {name for table in lake.tables() for name in lake.table(table).schema.names}
    words = [*_WORDS, *lake.tables(), *sorted(columns)]
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history_path())), completer=WordCompleter(words, ignore_case=True)
    )
    return session.prompt


def history_path() -> Path:
    """Where typed lines are kept: below ``XDG_STATE_HOME``, for the user's eyes only."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "lakebed" / "sql_history"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return path
