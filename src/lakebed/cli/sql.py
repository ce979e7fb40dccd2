"""``lakebed sql``: a query in SQL, or a prompt for many.

At a terminal without a statement there is a prompt, with history and completion where prompt_toolkit is installed
(``pip install "lakebed[shell]"``). Otherwise statements are read from stdin. In both a statement ends with a
semicolon; an error ends the statements of stdin, and not the prompt.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, byte_count, command
from lakebed.cli.interrupts import at_a_prompt
from lakebed.engine.tokens import split_statements
from lakebed.errors import Code, Error
from lakebed.model.checks import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    import lakebed
    from lakebed.cli.render import Output

_PROMPT = "lakebed> "
_MORE = "     ... "
_WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "USING", "AND",
    "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "AS", "WITH", "UNION ALL", "DISTINCT",
    "count(", "sum(", "min(", "max(", "avg(", "CAST(", "DESCRIBE", "EXPLAIN",
)  # fmt: skip


@command
@click.argument("statement", metavar="[STATEMENT]", required=False)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a heading.")
@click.option(
    "--memory-limit",
    metavar="BYTES",
    type=byte_count,
    help="Run each statement in a process that is killed beyond it: 512MiB, 2GiB or plain bytes.",
)
@click.option(
    "--timeout", metavar="SECONDS", type=float, help="Run each statement in a process that is killed after this time."
)
@options.row_format
def sql(
    cli: Invocation, *, statement: str | None, as_csv: bool, memory_limit: int | None, timeout: float | None
) -> None:
    """Print the rows of a query over any tables, or prompt for queries.

    SQL is DataFusion's, and only reads. Conditions on a prefix of the row key decide what is read. A table as it was is
    named with a version, a tag or a time: FROM flights@12, flights@audited, "flights@2026-01-31T12:00:00Z". Names are
    case-sensitive, and in double quotes unless they are plain words: "my-table". Rows have no order without ORDER BY.
    Without a STATEMENT: a prompt, or statements from stdin, each ended by a semicolon.
    """
    out = cli.out
    options.check_at_most_one({"--csv": as_csv, "--json": out.as_json})
    check_seconds("--timeout", timeout)
    lake = cli.instance()

    def answer(query: str) -> None:
        with lake.sql(query, memory_limit_bytes=memory_limit, timeout_s=timeout) as reader:
            _print(reader, out, as_csv=as_csv)

    if statement is not None:
        answer(statement)
    elif sys.stdin.isatty():
        out.note(f"tables: {', '.join(lake.tables()) or 'none yet'}. A query ends with ; and the prompt with Ctrl-D")
        with at_a_prompt():
            _converse(_asking(lake, out), answer, out)
    else:
        for query in _statements(sys.stdin):
            answer(query)


def _print(reader: pa.RecordBatchReader, out: Output, *, as_csv: bool) -> None:
    names = reader.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if out.as_json and twice:
        raise Code.COLUMN_DUPLICATE(f"two columns are named {', '.join(twice)}; give one of them another name with AS")
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
    """Ask for statements until there are no more. Ctrl-C discards what was typed, or ends a query."""
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
    """The function that prompts for a line."""
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
