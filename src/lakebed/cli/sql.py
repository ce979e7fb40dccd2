"""``lakebed sql``: a query in SQL, or several.

At a terminal without a statement there is a prompt (:mod:`lakebed.cli.sql_prompt`). Otherwise statements are read from
stdin. In both cases a statement ends with a semicolon. An error ends the statements of stdin, but not the prompt.
"""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options, sql_prompt
from lakebed.cli.argument_types import byte_count
from lakebed.cli.grammar import command
from lakebed.cli.interrupts import at_a_prompt
from lakebed.cli.invocation import Invocation
from lakebed.engine.tokens import split_statements
from lakebed.errors import Code
from lakebed.model.checks import check_seconds
from lakebed.model.documents import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
@options.row_format
def sql(
    cli: Invocation,
    *,
    statement: str | None,
    memory_limit: int | None,
    timeout: float | None,
    given: tuple[str, ...],
) -> None:
    """Print the rows of a query over any tables, or prompt for queries.

    The dialect is DataFusion's; statements are read-only. Conditions on a prefix of the row key are pushed down. To
    read an old version of a table, append a version, a tag or a time: FROM flights@12, flights@audited,
    "flights@2026-01-31T12:00:00Z". Names are case-sensitive, and need double quotes unless they are plain words:
    "my-table". Rows have no order without ORDER BY. A --param is a number, true, false or null, or otherwise a text,
    also in double quotes: --param '"7"'. SHOW TABLES, DESCRIBE, SUMMARIZE, EXPLAIN ANALYZE and information_schema are
    supported. Without a STATEMENT: a prompt, or statements from stdin, each ended by a semicolon.
    """
    out = cli.out
    check_seconds("--timeout", timeout)
    if given and statement is None:
        raise Code.ARGUMENTS_CONFLICT("--param goes with a statement on the command line")
    lake = cli.instance()

    def answer(query: str) -> None:
        parameters = _parameters(query, given) if given else None
        with lake.sql(query, parameters=parameters, memory_limit_bytes=memory_limit, timeout_s=timeout) as reader:
            _print_rows(reader, out)

    if statement is not None:
        answer(statement)
    elif sys.stdin.isatty():
        out.note(f"tables: {', '.join(lake.tables()) or 'none yet'}. A query ends with ; and .help has more")
        with at_a_prompt():
            sql_prompt.converse(sql_prompt.asking(lake, out), answer, lake, out)
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
