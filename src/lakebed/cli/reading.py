"""Options that say how text files are read, and ``lakebed schema infer``: the columns of a file, as detected."""

from __future__ import annotations

import contextlib
import functools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import options
from lakebed.cli.grammar import Invocation, command, name_value
from lakebed.cli.render import count_text
from lakebed.cli.row_formats import json_text
from lakebed.errors import Code
from lakebed.formats.input_file import InputFile, spooled
from lakebed.formats.reading_options import FORMATS, ReadingOptions
from lakebed.model import types
from lakebed.model.type_names import name_of

if TYPE_CHECKING:
    from lakebed.ingest.input_files import Inferred
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage

STDIN = "-"
_TAB = ("tab", "\\t")


def reading_options(function: Callable[..., None]) -> Callable[..., None]:
    """Options that override what is detected, as one parameter ``reading``."""

    @click.option("--format", type=click.Choice(FORMATS), help="The format of the files. Default: by content and name.")
    @click.option("--delimiter", metavar="C", help="What is between the cells of CSV: one character, or tab.")
    @click.option("--quote", metavar="C", help='What CSV cells are quoted with. Default: ".')
    @click.option("--header/--no-header", default=None, help="Whether the first line of CSV has the names of columns.")
    @click.option("--names", metavar="A,B", multiple=True, help="Names of the columns of CSV without a header.")
    @click.option("--type", "kinds", metavar="COLUMN=TYPE", type=name_value, multiple=True, help="May be repeated.")
    @click.option("--null", "nulls", metavar="WORD", multiple=True, help="What stands for null, beside an empty cell.")
    @click.option("--timezone", metavar="ZONE", help="The zone of times without one, such as Europe/Berlin.")
    @click.option("--date-format", metavar="FORMAT", help="Of dates and times that are not ISO 8601: %d.%m.%Y.")
    @click.option("--encoding", metavar="NAME", help="Of text. Default: UTF-8, or UTF-16 with a byte order mark.")
    @functools.wraps(function)
    def with_reading(*args: Any, **given: Any) -> None:
        delimiter = given.pop("delimiter")
        reading = ReadingOptions(
            format=given.pop("format"),
            delimiter="\t" if delimiter in _TAB else delimiter,
            quote=given.pop("quote"),
            header=given.pop("header"),
            columns=tuple(options.names(given.pop("names")) or ()),
            types={name: types.parse(kind) for name, kind in given.pop("kinds")},
            nulls=given.pop("nulls"),
            timezone=given.pop("timezone"),
            date_format=given.pop("date_format"),
            encoding=given.pop("encoding"),
        )
        function(*args, reading=reading, **given)

    return with_reading


@contextlib.contextmanager
def inputs(texts: Sequence[str], home: Storage | None = None) -> Iterator[list[InputFile]]:
    """The files that the words name; ``-`` is standard input, which is kept in a temporary file. Raises UsageError."""
    from lakebed.ingest.input_files import find_inputs

    if texts.count(STDIN) > 1:
        raise Code.SOURCE_DUPLICATE("standard input is named twice; it can be read once", name=STDIN)
    with contextlib.ExitStack() as stack:
        given: list[Any] = list(texts)
        if STDIN in texts:
            if sys.stdin.isatty():
                raise Code.ARGUMENT_INVALID("- is standard input, and that is a terminal: pipe a file into the command")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakebed-stdin-")))
            given[texts.index(STDIN)] = spooled(sys.stdin.buffer, folder, "standard input")
        yield find_inputs(given, home)


def schema_of(found: Inferred, row_key: Sequence[str], sort_key: Sequence[str]) -> Schema:
    """The schema of a table for the rows of a file. Raises UsageError."""
    from lakebed.model.schema import Schema

    return Schema.from_arrow(found.columns, list(row_key), list(sort_key))


# -- lakebed schema infer -------------------------------------------------------------------------------------------


@command
@click.argument("file", metavar="FILE", help="A local path, s3://… and the like, or - for standard input.")
@click.option("--key", metavar="A,B", multiple=True, help="Row key columns.")
@click.option("--sort-key", metavar="C", multiple=True, help="Sort key columns.")
@reading_options
def infer(
    cli: Invocation, *, file: str, key: tuple[str, ...], sort_key: tuple[str, ...], reading: ReadingOptions
) -> None:
    """Show the columns of a file, as they are detected; with --key, print a schema for them.

    The schema goes to stdout, so that `lakebed schema infer users.csv --key id > users.json` makes a file for `lakebed
    table create --schema`; what was detected goes to stderr. Needs no instance.
    """
    from lakebed.ingest.input_files import inferred

    with inputs([file]) as found:
        seen = inferred(found[0], reading)
    row_key, sorted_by = options.names(key), options.names(sort_key) or []
    if sorted_by and not row_key:
        raise Code.ARGUMENT_MISSING("--sort-key needs --key: the columns of the row key")
    schema = None if row_key is None else _short(schema_of(seen, row_key, sorted_by))
    lines = detected_lines(seen)
    if schema is None:
        cli.out.document(_document(seen, None), lines)
        return
    if not cli.as_json:
        cli.out.note("\n".join(lines))
    cli.out.document(_document(seen, schema), [json_text(schema)])


def detected_lines(seen: Inferred) -> list[str]:
    """What was detected of a file, for people."""
    lines = [f"{seen.file}: {seen.format.value if seen.csv is None else seen.csv.dialect.said}"]
    if seen.format.is_text:
        said = "all" if seen.whole else "the first"
        lines[0] += f"; types detected from {said} {count_text(seen.rows, 'row')}"
    if seen.csv is not None and len(seen.csv.nulls) > 1:
        lines[0] += f"; null: {', '.join(map(repr, seen.csv.nulls[1:]))} and empty cells"
    rows = [(name, name_of(kind), _shown(seen.examples[name])) for name, kind in _columns(seen)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    cells = ((name.ljust(widths[0]), kind.ljust(widths[1]), values) for name, kind, values in rows)
    return [*lines, *(f"  {'  '.join(row)}".rstrip() for row in cells)]


def _columns(seen: Inferred) -> list[tuple[str, Any]]:
    return [(column.name, column.type) for column in seen.columns]


def _shown(examples: Sequence[str]) -> str:
    return ", ".join(text if len(text) <= 30 else f"{text[:29]}…" for text in examples)


def _document(seen: Inferred, schema: dict[str, Any] | None) -> dict[str, Any]:
    document: dict[str, Any] = {"file": str(seen.file), "format": seen.format.name.lower()}
    csv = seen.csv
    if csv is not None:
        document |= {
            "delimiter": csv.dialect.delimiter,
            "quote": csv.dialect.quote,
            "header": csv.dialect.header,
            "encoding": csv.dialect.encoding,
            "nulls": list(csv.nulls),
        }
    names = [{"name": n, "type": types.to_json(k), "values": list(seen.examples[n])} for n, k in _columns(seen)]
    return document | {"rows_seen": seen.rows, "whole": seen.whole, "columns": names, "schema": schema}


def _short(schema: Schema) -> dict[str, Any]:
    """The schema as people write it."""
    groups = (("row_key", schema.row_key), ("sort_key", schema.sort_key), ("values", schema.values))
    return {name: {f.name: types.to_json(f.type) for f in fields} for name, fields in groups if fields}
