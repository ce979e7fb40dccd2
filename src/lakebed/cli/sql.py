"""``lakebed sql``: a query in SQL, several from stdin, or a prompt for them.

A statement ends with a semicolon. An error ends the statements of stdin, but not the prompt. At the prompt there are
commands that begin with a dot. Where prompt_toolkit is installed (``pip install "lakebed[shell]"``), there is history
and completion too, and Enter ends a statement at its semicolon and begins another line before it; a statement is one
entry of the history, whatever its number of lines.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options
from lakebed.cli.grammar import byte_count, command
from lakebed.cli.interrupts import at_a_prompt
from lakebed.cli.invocation import Invocation
from lakebed.cli.progress import open_pipeline
from lakebed.engine.change_statements import changes
from lakebed.engine.tokens import quoted_name, split_statements, tokens_of
from lakebed.errors import Code, Error
from lakebed.model.checks import check_seconds
from lakebed.model.documents import load
from lakebed.model.json_values import json_text
from lakebed.upkeep.export.plan import FORMATS as EXPORT_FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prompt_toolkit.document import Document

    import lakebed
    from lakebed.cli.render import Output
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.sql.limited import LimitedRows


@command
@click.argument("statement", metavar="[STATEMENT]", required=False)
@click.option(
    "--memory-limit",
    metavar="BYTES",
    type=byte_count,
    help="Run each statement in a process that is killed beyond it: 512MiB, 2GiB or plain bytes.",
)
@click.option(
    "--timeout", metavar="SECONDS", type=float, help="Run each statement in a process that is killed after this time."
)
@click.option(
    "--param",
    "given",
    metavar="VALUE",
    multiple=True,
    help="A value for ? or $1; NAME=VALUE for $name. May be repeated.",
)
@click.option("--export", "url", metavar="URL", help="Write the rows as files to an empty folder, as export does.")
@click.option(
    "--export-format",
    type=click.Choice(EXPORT_FORMATS),
    help="With --export: the files' format. Default: parquet.",
)
@options.row_format
def sql(
    cli: Invocation,
    *,
    statement: str | None,
    memory_limit: int | None,
    timeout: float | None,
    given: tuple[str, ...],
    url: str | None,
    export_format: str | None,
) -> None:
    """Run SQL: print the rows of a query, or change tables; or prompt.

    The dialect is DataFusion's. INSERT, UPDATE, DELETE, MERGE, CREATE, ALTER, DROP and TRUNCATE are one commit each,
    and print the count of their rows (`lakebed docs sql-writes`). Conditions on a prefix of the row key are pushed
    down. To read an old version of a table, append a version, a tag or a time: FROM flights@12, flights@audited,
    "flights@2026-01-31T12:00:00Z". Names are case-sensitive, and need double quotes unless they are plain words:
    "my-table". Rows have no order without ORDER BY. A --param is a number, true, false or null, or otherwise a text,
    also in double quotes: --param '"7"'. SHOW TABLES, DESCRIBE, SUMMARIZE, EXPLAIN ANALYZE and information_schema are
    supported. Without a STATEMENT: a prompt, or statements from stdin, each ended by a semicolon.
    """
    out = cli.out
    check_seconds("--timeout", timeout)
    if given and statement is None:
        raise Code.ARGUMENTS_CONFLICT("--param goes with a statement on the command line")
    if export_format is not None and url is None:
        raise Code.ARGUMENTS_CONFLICT("--export-format goes with --export URL")
    if url is not None:
        if statement is None or memory_limit is not None or timeout is not None:
            raise Code.ARGUMENTS_CONFLICT("--export goes with a statement, without --memory-limit and --timeout")
        parameters = _parameters(statement, given) if given else None
        with open_pipeline(cli, "this-thread") as pipeline:
            report = pipeline.export_sql(statement, url, format=export_format or "parquet", parameters=parameters)
        out.document(report, [report.summary])
        return
    lake = cli.instance()

    def answer(query: str) -> None:
        parameters = _parameters(query, given) if given else None
        if changes(query):
            report = lake.execute(query, parameters=parameters, memory_limit_bytes=memory_limit, timeout_s=timeout)
            out.document(report, [report.summary])
            return
        with lake.sql(query, parameters=parameters, memory_limit_bytes=memory_limit, timeout_s=timeout) as reader:
            _print_rows(reader, out)

    if statement is not None:
        answer(statement)
    elif sys.stdin.isatty():
        out.note(f"tables: {', '.join(lake.tables()) or 'none yet'}. A query ends with ; and .help has more")
        with at_a_prompt():
            converse(asking(lake, out), answer, lake, out)
    else:
        for query in _statements(sys.stdin):
            answer(query)


def _print_rows(reader: RowStream | LimitedRows, out: Output) -> None:
    names = reader.schema.names
    if names == ["plan_type", "plan"] and not out.for_programs:
        # Plans of EXPLAIN have many lines, which cells of a table do not.
        for row in reader.to_arrow().to_pylist():
            print(f"{row['plan_type']}\n{textwrap.indent(row['plan'].rstrip(), '  ')}")
    elif not out.rows(reader.schema, reader):
        out.note("no rows")


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """Return what stands between semicolons; the last one may do without."""
    left = ""
    for line in lines:
        whole, left = split_statements(left + line)
        yield from whole
    if left.strip():
        yield left


def _parameters(statement: str, given: Sequence[str]) -> list[Any] | dict[str, Any]:
    """Return the values of ``--param``: by name if the statement has ``$name``, otherwise in order."""
    from lakebed.engine.statement_parameters import places

    if not any(isinstance(place.value, str) for place in places(statement)):
        return [_parameter_value(one) for one in given]
    found = {}
    for one in given:
        name, equals, text = one.partition("=")
        if not equals:
            raise Code.ARGUMENT_INVALID(f"--param {one}: the statement has named parameters; give NAME=VALUE")
        found[name.removeprefix("$")] = _parameter_value(text)
    return found


def _parameter_value(text: str) -> Any:
    """Return a number, a boolean or null as JSON has them, a text in double quotes, or else the text itself."""
    try:
        found = load(text)
    except ValueError:
        return text
    return text if isinstance(found, dict | list) else found


PROMPT = "lakebed> "
MORE = "     ... "
MODES = ("table", "csv", "json", "jsonl", "markdown")

_TABLES_MAX = 100
"""Tables whose columns are completed: each costs some requests at the start of the prompt."""

_WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "JOIN", "LEFT JOIN", "ON", "USING", "AND",
    "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "AS", "WITH", "UNION ALL", "DISTINCT",
    "count(", "sum(", "min(", "max(", "avg(", "CAST(", "SHOW TABLES", "DESCRIBE", "SUMMARIZE", "EXPLAIN",
    "EXPLAIN ANALYZE",
)  # fmt: skip

_HELP = """\
A statement ends with a semicolon, and may have several lines. Ctrl-C discards it, or ends a query; Ctrl-D leaves.
SHOW TABLES; DESCRIBE t; SUMMARIZE t; EXPLAIN …; EXPLAIN ANALYZE …; SELECT … FROM information_schema.columns;
.tables           the tables
.schema [TABLE]   the schema of a table, or of all, as `lakebed table create --schema` reads it
.mode [FORMAT]    how rows are printed: table, csv, json, jsonl, markdown
.help             these lines
.exit             leave; also .quit, exit, quit"""

_DOTS = (".tables", ".schema", ".mode", ".help", ".exit", ".quit")
_LEAVE = ("exit", "quit", ".exit", ".quit")
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BEFORE_TABLES = ("from", "join", "describe", "desc", "summarize", ".schema", "table")


def converse(ask: Callable[[str], str], answer: Callable[[str], None], lake: lakebed.Instance, out: Output) -> None:
    """Ask for statements until there are no more. Ctrl-C discards what was typed, or ends a query."""
    left = ""
    while True:
        try:
            text = ask(MORE if left.strip() else PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            left = ""
            continue
        word = text.strip().rstrip(";").strip()
        if not left.strip() and word.lower() in _LEAVE:
            return
        if not left.strip() and word.startswith("."):
            _attempt(lambda line: _dot_command(line, lake, out), word, out)
            continue
        whole, left = split_statements(f"{left}{text}\n")
        for statement in whole:
            _attempt(answer, statement, out)


def _attempt(act: Callable[[str], None], text: str, out: Output) -> None:
    try:
        act(text)
    except Error as error:
        out.note(f"lakebed: {error.message}")
    except KeyboardInterrupt:
        out.note("lakebed: interrupted")


def _dot_command(line: str, lake: lakebed.Instance, out: Output) -> None:
    command, *words = line.split()
    match command.lower(), words:
        case ".tables", []:
            print("\n".join(lake.tables()) or "no tables yet")
        case ".schema", []:
            print("\n".join(f"{name}: {_schema_text(lake, name)}" for name in lake.tables()) or "no tables yet")
        case ".schema", [name]:
            print(_schema_text(lake, name.strip('"')))
        case ".mode", []:
            out.note(f"rows are printed as {out.row_format or 'table'}; others: {', '.join(MODES)}")
        case ".mode", [mode] if mode in MODES:
            out.row_format = None if mode == "table" else mode
        case ".mode", _:
            out.note(f"lakebed: .mode takes one of {', '.join(MODES)}")
        case ".help", _:
            print(_HELP)
        case _:
            out.note(f"lakebed: no command {line!r}; .help lists them")


def _schema_text(lake: lakebed.Instance, name: str) -> str:
    return json_text(lake.table(name).schema.declaration())


# -- prompt_toolkit ---------------------------------------------------------------------------------------------------


def asking(lake: lakebed.Instance, out: Output, **options: Any) -> Callable[[str], str]:
    """Return the function that prompts for a statement, or, without prompt_toolkit, for a line; ``options`` are those
    of a session of prompt_toolkit.
    """
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory
        from prompt_toolkit.key_binding import KeyBindings
    except ImportError:
        out.note('history and completion come with pip install "lakebed[shell]"')
        return input
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history_path())),
        completer=_completer(lake),
        key_bindings=keys,
        multiline=True,
        prompt_continuation=MORE,
        **options,
    )
    return session.prompt


def is_whole(text: str) -> bool:
    """Return whether Enter ends the text: a statement with its semicolon, a command, or nothing."""
    text = text.strip()
    if not text or text.startswith(".") or text.lower() in _LEAVE:
        return True
    whole, left = split_statements(text)
    return bool(whole) and not left.strip()


def _completer(lake: lakebed.Instance) -> Any:
    """Complete names of tables after FROM and the like, elsewhere columns and words of SQL as well."""
    from prompt_toolkit.completion import Completer, Completion

    tables = lake.tables()
    columns = {name for table in tables[:_TABLES_MAX] for name in lake.table(table).schema.names}

    class Names(Completer):
        """What may follow the text before the cursor."""

        def get_completions(self, document: Document, _: Any) -> Iterator[Completion]:
            typed = document.get_word_before_cursor(pattern=re.compile(r"[\w.\"-]+"))
            before = document.text_before_cursor.removesuffix(typed)
            for candidate in candidates(before, tables, columns):
                if candidate.strip('"').lower().startswith(typed.strip('"').lower()):
                    yield Completion(candidate, start_position=-len(typed))

    return Names()


def candidates(before: str, tables: list[str], columns: set[str]) -> list[str]:
    """Return what may follow a text: names of tables alone after FROM, JOIN, DESCRIBE and their like."""
    if not before.strip():
        return [*_DOTS, *_WORDS]
    words = [token.text.lower() for token in tokens_of(before)]
    named = [*map(_name_in_statement, tables)]
    after = ".schema" if before.strip().lower() == ".schema" else words[-1] if words else ""
    if before.strip().lower() == ".mode":
        return list(MODES)
    return named if after in _BEFORE_TABLES else [*map(_name_in_statement, sorted(columns)), *named, *_WORDS]


def _name_in_statement(name: str) -> str:
    """Return a name as a statement writes it."""
    return name if _PLAIN.fullmatch(name) else quoted_name(name)


def history_path() -> Path:
    """Return where typed statements are kept: below ``XDG_STATE_HOME``, for the user's eyes only."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "lakebed" / "sql_history"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    return path
