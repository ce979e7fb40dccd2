"""Options that say how text files are read, and ``lakebed schema infer``: the columns of a file, as detected.

Detection is that of :mod:`lakebed.write.input_files`; an option overrides it. Standard input is kept in a file, since
it is read twice. Errors: UsageError for a file or an option that does not fit. Source: docs/import.md.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from lakebed.cli import completions, options
from lakebed.cli.grammar import command, name_value
from lakebed.cli.invocation import Invocation
from lakebed.errors import Code, Error, ExistsError, NotFoundError, UnknownOutcomeError
from lakebed.files.formats.input_file import InputFile, spool
from lakebed.files.formats.reading_options import DECIMAL_POINTS, FORMATS, ReadingOptions
from lakebed.model import types
from lakebed.model.json_values import json_text
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.type_names import name_of
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table
    from lakebed.write.input_files import Inferred

STDIN = "-"
_TAB = ("tab", "\\t")


Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def reading_options_of(*more_formats: str) -> Decorator:
    """Return options that override what is detected, as one parameter ``reading``; with ``more_formats``, which others
    read, the format is a parameter of its own.
    """
    return functools.partial(_with_options, more_formats=more_formats)


def _with_options(function: Callable[..., None], more_formats: Sequence[str]) -> Callable[..., None]:
    formats = (*FORMATS, *more_formats)

    @click.option("--format", type=click.Choice(formats), help="The format of the files. Default: by content and name.")
    @click.option("--delimiter", metavar="C", help="The delimiter of CSV: one character, or tab.")
    @click.option("--quote", metavar="C", help='The quote character of CSV. Default: ".')
    @click.option("--header/--no-header", default=None, help="Whether the first line of CSV has the names of columns.")
    @click.option("--names", metavar="A,B", multiple=True, help="Names of the columns of CSV without a header.")
    @click.option(
        "--type",
        "kinds",
        metavar="COLUMN=TYPE",
        type=name_value,
        multiple=True,
        help="The type of a column. May be repeated.",
    )
    @click.option("--null", "nulls", metavar="WORD", multiple=True, help="A word that means null, like an empty cell.")
    @click.option("--timezone", metavar="ZONE", help="The time zone of times without one, such as Europe/Berlin.")
    @click.option("--date-format", metavar="FORMAT", help="Format of dates and times that are not ISO 8601: %d.%m.%Y.")
    @click.option(
        "--decimal-point", type=click.Choice(DECIMAL_POINTS), default=".", help="The decimal point of numbers in CSV."
    )
    @click.option(
        "--encoding", metavar="NAME", help="Encoding of text. Default: UTF-8, or UTF-16 with a byte order mark."
    )
    @functools.wraps(function)
    def with_reading(*args: Any, **given: Any) -> None:
        delimiter = given.pop("delimiter")
        own_format = {"format": given["format"]} if more_formats else {}
        reading = ReadingOptions(
            format=None if given["format"] in more_formats else given["format"],
            delimiter="\t" if delimiter in _TAB else delimiter,
            quote=given.pop("quote"),
            header=given.pop("header"),
            columns=tuple(options.names(given.pop("names")) or ()),
            types={name: types.canonical(types.parse(kind)) for name, kind in given.pop("kinds")},
            nulls=given.pop("nulls"),
            timezone=given.pop("timezone"),
            date_format=given.pop("date_format"),
            encoding=given.pop("encoding"),
            decimal_point=given.pop("decimal_point"),
        )
        del given["format"]
        function(*args, reading=reading, **own_format, **given)

    return with_reading


reading_options = reading_options_of()
"""For commands that read files in this process."""


@contextlib.contextmanager
def inputs(texts: Sequence[str], home: Storage | None = None) -> Iterator[list[InputFile]]:
    """The files that the words name; ``-`` is standard input, which is kept in a temporary file. Raises UsageError."""
    from lakebed.storage.disk_space import scratch_folder
    from lakebed.write.input_files import find_inputs

    if texts.count(STDIN) > 1:
        raise Code.SOURCE_DUPLICATE("standard input is named twice; it can be read once", name=STDIN)
    with contextlib.ExitStack() as stack:
        given: list[Any] = list(texts)
        if STDIN in texts:
            if sys.stdin.isatty():
                raise Code.ARGUMENT_INVALID("- is standard input, and that is a terminal: pipe a file into the command")
            folder = stack.enter_context(scratch_folder("stdin"))
            given[texts.index(STDIN)] = spool(sys.stdin.buffer, folder, "standard input")
        yield find_inputs(given, home)


def store_of(cli: Invocation, file: str) -> Storage | None:
    """Return a store with the options in force, for a file that is looked at without the instance; None for their
    defaults.

    The options are those of the file, unless they are those of an instance on another kind of store.
    """
    from lakebed.storage import connect
    from lakebed.storage.external import kind_of

    options, kind = cli.options_in_force(), kind_of(file)
    if not options or kind == "file" or kind_of(cli.url_if_given() or "") not in {kind, "file"}:
        return None
    scheme, _, path = file.partition("://")
    return connect(f"{scheme}://{path.partition('/')[0]}", options)


def schema_of(found: Inferred, row_key: Sequence[str], sort_key: Sequence[str]) -> Schema:
    """Return the schema of a table for the rows of files. Raises UsageError."""
    from lakebed.model.schema import Schema

    return Schema.from_arrow(found.columns, list(row_key), list(sort_key))


@contextlib.contextmanager
def table_for(
    cli: Invocation, name: str, files: Callable[[], Sequence[InputFile]], keys: Keys, reading: ReadingOptions
) -> Iterator[tuple[Table, Inferred | None]]:
    """The target table, and the columns from which it was created: with ``keys``, a missing table is created from the
    columns of the ``files``, and dropped again if the block fails or is interrupted before it has rows.

    Raises NotFoundError for a table that does not exist without keys, UsageError for one of other keys.
    """
    from lakebed.table.creation import check_name
    from lakebed.write.input_files import inferred_together

    instance = cli.instance()
    if name in instance.tables():
        if keys.row_key is not None:
            options.check_keys(instance.table(name), keys.row_key, keys.sort_key, option="--key")
        if keys.merge not in (None, held := instance.table(name).state().merge):
            raise Code.ARGUMENTS_CONFLICT(f"table {name} merges by {held}, and not by --merge: leave the option out")
        yield instance.table(name), None
        return
    if keys.row_key is None:
        raise _with_key_advice(instance, name)
    check_name(name)
    made = inferred_together(files(), reading)
    # Detected columns are shown before they are used.
    cli.out.note("\n".join(detected_lines(made)))
    schema = schema_of(made, keys.row_key, keys.sort_key)
    try:
        table = instance.create_table(name, schema, merge=keys.merge or KEEP_ALL)
    except ExistsError as error:
        raise error.restated(f"table {name} was created meanwhile by another process; write again") from error.__cause__
    with dropped_if_unused(instance, table):
        yield table, made


@contextlib.contextmanager
def dropped_if_unused(instance: Instance, table: Table) -> Iterator[None]:
    """Drop a table that this command created if the block fails or is interrupted before the table has rows."""
    try:
        yield
    except UnknownOutcomeError:
        raise
    except (Error, KeyboardInterrupt):
        # If this fails too, the first error is the one to report.
        with contextlib.suppress(Error):
            _drop_unused(instance, table)
        raise


def _drop_unused(instance: Instance, table: Table) -> None:
    """Drop a table that this command created, unless it has files or requests; another may have its name by now."""
    state = table.state()
    is_used = state.dropped or state.files or state.open_requests
    if not is_used and table.name in instance.tables() and instance.table(table.name).id == table.id:
        instance.drop_table(table.name)


@dataclass(frozen=True, slots=True)
class Keys:
    """The words of ``--key`` and ``--sort-key``, and ``--merge``. Raises UsageError for a sort key alone."""

    row_key: list[str] | None
    sort_key: list[str]
    merge: MergeMode | None = None

    @classmethod
    def of(cls, key: Sequence[str], sort_key: Sequence[str], merge: MergeMode | None = None) -> Keys:
        """Return the names in the words."""
        found = cls(options.names(key), options.names(sort_key) or [], merge)
        if found.sort_key and not found.row_key:
            raise Code.ARGUMENT_MISSING("--sort-key needs --key: the columns of the row key")
        return found


def _with_key_advice(instance: Instance, table: str) -> Error:
    """Return the error about a table that does not exist, with the option that creates it."""
    from lakebed.table.ahead import confirmed

    try:
        confirmed(instance).table(table)
    except NotFoundError as error:
        return error.restated(f"{error.message}; to make it from the file, give --key A,B: its row key columns")
    return Code.TABLE_EXISTS(f"table {table} was created meanwhile; write again", table=table)


# -- lakebed schema infer -------------------------------------------------------------------------------------------


@command
@click.argument(
    "file",
    metavar="FILE",
    shell_complete=completions.paths,
    help="A local path, s3://… and the like, or - for standard input.",
)
@click.option("--key", metavar="A,B", multiple=True, help="Row key columns.")
@click.option("--sort-key", metavar="C", multiple=True, help="Sort key columns.")
@reading_options
def infer(
    cli: Invocation, *, file: str, key: tuple[str, ...], sort_key: tuple[str, ...], reading: ReadingOptions
) -> None:
    """Show the detected columns of a file; with --key, print a schema for them.

    The schema goes to stdout, so that `lakebed schema infer users.csv --key id > users.json` makes a file for `lakebed
    table create --schema`; what was detected goes to stderr. Needs no instance.
    """
    from lakebed.write.input_files import infer

    with inputs([file], store_of(cli, file)) as found:
        seen = infer(found[0], reading)
    keys = Keys.of(key, sort_key)
    schema = None if keys.row_key is None else _short_form(schema_of(seen, keys.row_key, keys.sort_key))
    lines = detected_lines(seen)
    if schema is None:
        cli.out.document(_detected_document(seen, None), lines)
        return
    if not cli.as_json:
        cli.out.note("\n".join(lines))
    cli.out.document(_detected_document(seen, schema), [json_text(schema)])


def detected_lines(seen: Inferred) -> list[str]:
    """Return the detected columns of a file, as text."""
    others = f" and {count_text(seen.files - 1, 'other file')}" if seen.files > 1 else ""
    lines = [f"{seen.file}{others}: {seen.format.value if seen.csv is None else seen.csv.dialect.said}"]
    if seen.format.is_text:
        said = "all" if seen.whole else "the first"
        lines[0] += f"; types detected from {said} {count_text(seen.rows, 'row')}"
    if seen.csv is not None and len(seen.csv.nulls) > 1:
        lines[0] += f"; null: {', '.join(map(repr, seen.csv.nulls[1:]))} and empty cells"
    kinds = [(name, name_of(types.canonical(kind))) for name, kind in _detected_types(seen)]
    rows = [(name, kind, _examples_text(seen.examples[name])) for name, kind in kinds]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    cells = ((name.ljust(widths[0]), kind.ljust(widths[1]), values) for name, kind, values in rows)
    return [*lines, *(f"  {'  '.join(row)}".rstrip() for row in cells)]


def _detected_types(seen: Inferred) -> list[tuple[str, Any]]:
    return [(column.name, column.type) for column in seen.columns]


def _examples_text(examples: Sequence[str]) -> str:
    plain = (" ".join(text.split("\n")) for text in examples)
    return ", ".join(text if len(text) <= 30 else f"{text[:29]}…" for text in plain)


def _detected_document(seen: Inferred, schema: dict[str, Any] | None) -> dict[str, Any]:
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
    names = [{"name": n, "type": types.to_json(k), "values": list(seen.examples[n])} for n, k in _detected_types(seen)]
    return document | {"rows_seen": seen.rows, "whole": seen.whole, "columns": names, "schema": schema}


def _short_form(schema: Schema) -> dict[str, Any]:
    """Return the schema in the short form."""
    groups = (("row_key", schema.row_key), ("sort_key", schema.sort_key), ("values", schema.values))
    return {name: {f.name: types.to_json(f.type) for f in fields} for name, fields in groups if fields}
