"""``lakebed init``, ``table`` and ``settings``: instances, the tables in them, their schemas and settings.

A schema comes from a file, or from the columns of a data file. ``table alter`` takes one change, and commits it alone.
Errors: UsageError for a schema, type or setting that is none. Source: docs/schemas.md, docs/settings.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import lakebed
from lakebed.cli import completions, options
from lakebed.cli.grammar import command, name_value
from lakebed.cli.invocation import HERE, Invocation
from lakebed.cli.merging import age_off_of, filter_lines, merge_options
from lakebed.cli.reading import inputs, reading_options, schema_of, store_of
from lakebed.cli.render import ABOUT, columns, key_text
from lakebed.errors import Code, UsageError
from lakebed.model import settings, types
from lakebed.model.checks import shown
from lakebed.model.documents import UNREADABLE, load
from lakebed.model.foreign_errors import error_text
from lakebed.model.row_filters import AgeOff, FilterChange, SetFilter
from lakebed.model.state.sums import unreferenced_files
from lakebed.model.state.transactions.schema_changes import (
    AddField,
    AllowNulls,
    DropField,
    RenameField,
    SchemaChange,
    WidenField,
    describe,
)
from lakebed.model.type_names import name_of
from lakebed.model.wording import count_text, size_text
from lakebed.read.inspect.report import file_rows, partition_rows
from lakebed.table.description import filter_document, table_document

if TYPE_CHECKING:
    from lakebed.files.formats.reading_options import ReadingOptions
    from lakebed.model.merge_modes import MergeMode


@command
@click.argument(
    "url",
    metavar="[URL]",
    required=False,
    shell_complete=completions.paths,
    help="A path, file://, s3://, gs:// or az://.",
)
@click.option("--among-others", is_flag=True, help="Allow a folder that holds other files.")
def init(cli: Invocation, *, url: str | None, among_others: bool) -> None:
    """Create an instance, by default in the folder lake."""
    instance = lakebed.create(
        url or cli.url_if_given() or HERE,
        storage_options=cli.options_in_force(),
        log_url=cli.log_url_in_force(),
        among_others=among_others,
    )
    document = {"url": instance.url, "instance": instance.id, "log_url": instance.log_url}
    cli.out.document(document, [f"created an instance at {instance.url}"])


@command
@click.argument("name", metavar="NAME")
@options.file("--schema", "A JSON file with the schema.")
@click.option(
    "--schema-from", metavar="FILE", shell_complete=completions.paths, help="Take columns and types from a data file."
)
@click.option("--key", "row_key", metavar="A,B", multiple=True, help="Row key columns, with --schema-from.")
@click.option("--sort-key", metavar="C", multiple=True, help="Sort key columns, with --schema-from.")
@reading_options
@options.file("--split-points", "Keys to split the table at, one a line.")
@click.option("--set", "settings", metavar="NAME=VALUE", type=name_value, multiple=True, help="May be repeated.")
@click.option("--offline", is_flag=True, help="Do not compact or split it until `table alter --online`.")
@merge_options
def create(
    cli: Invocation,
    *,
    name: str,
    schema: Path | None,
    schema_from: str | None,
    reading: ReadingOptions,
    row_key: tuple[str, ...],
    sort_key: tuple[str, ...],
    split_points: Path | None,
    settings: tuple[tuple[str, str], ...],
    offline: bool,
    merge: MergeMode,
) -> None:
    """Create an empty table.

    A schema file is JSON: {"row_key": {"device": "string"}, "sort_key": {"at": "timestamp[us, tz=UTC]"}, "values":
    {"reading": "double"}}, or the "schema" that `table show --json` prints. With --schema-from, columns that are not
    keys become values; those of CSV and JSON are detected, as `lakebed schema infer FILE` shows. Split points
    are keys at which the table is cut into partitions from the start: a text file of one key a line, its fields as in
    CSV. A key field of the type {"type": "date32", "generated": "cast(at as date)"} is computed for every row
    (`lakebed docs import`). --merge latest keeps one row a row key, the newest (`lakebed docs merging`).
    """
    options.check_one({"--schema": schema, "--schema-from": schema_from})
    if schema is not None:
        found = _schema_in(schema, keys_given=bool(row_key or sort_key))
    else:
        found = _inferred_schema(cli, schema_from or "", reading, options.names(row_key), options.names(sort_key))
    points = options.keys_in(split_points, found) if split_points else []
    table = cli.instance().create_table(
        name, found, split_points=points, settings=options.setting_changes(settings), online=not offline, merge=merge
    )
    partitions = len(points) + 1
    cli.out.document(
        {"table": table.name, "id": table.id, "version": table.version, "partitions": partitions},
        [f"created table {table.name} with {count_text(partitions, 'partition')}"],
    )


def _schema_in(file: Path, *, keys_given: bool) -> lakebed.Schema:
    from lakebed.files.formats.input_file import read_text

    if keys_given:
        raise Code.ARGUMENTS_CONFLICT("--key and --sort-key go with --schema-from; a schema file names its keys itself")
    try:
        return lakebed.Schema.from_json(read_text(file))
    except UsageError as error:
        raise error.restated(f"{file}: {error.message}") from error.__cause__


def _inferred_schema(
    cli: Invocation, file: str, reading: ReadingOptions, row_key: list[str] | None, sort_key: list[str] | None
) -> lakebed.Schema:
    from lakebed.write.input_files import infer

    if not row_key:
        raise Code.ARGUMENTS_CONFLICT("--schema-from needs --key: the columns of the row key")
    with inputs([file], store_of(cli, file)) as found:
        return schema_of(infer(found[0], reading), row_key, sort_key or [])


@command
@options.row_format
def list_tables(cli: Invocation) -> None:
    """List all tables."""
    tables = cli.instance().tables()
    cli.out.document({"tables": tables}, tables)


@command
@options.table
def show(cli: Invocation, *, table: str) -> None:
    """Show a table's schema and size."""
    instance = cli.instance()
    found = instance.table(table)
    document = table_document(found, online=instance.is_online(found.name), paused=instance.paused(found.name))
    cli.out.document(document, _show_lines(document, found.schema))


def _show_lines(document: dict[str, Any], schema: lakebed.Schema) -> list[str]:
    rows = count_text(document["rows"], "row", exact=document["exact"])
    if not document["exact"]:
        rows += f" (at least {document['rows_min']:,}, at most {document['rows_max']:,})"
    counts = (
        rows,
        count_text(document["files"], "file"),
        size_text(document["bytes"]),
        count_text(document["partitions"], "partition"),
    )
    unused = document["unreferenced_files"]
    width = max(len(name) for name in schema.names)
    lines = [
        f"table {document['table']}, {'online' if document['online'] else 'offline'}, at version {document['version']}",
        ", ".join(counts),
    ]
    if unused:
        size = size_text(document["unreferenced_bytes"])
        lines.append(f"{count_text(unused, 'file')} of {size} without references, for older versions or until gc")
    if document["paused"]:
        lines.append(f"paused: {', '.join(document['paused'])}")
    if document["merge"] is not None:
        lines.append(f"rows with equal keys: {_mode_text(document['merge'])}")
    lines += filter_lines(document)
    if document["view"] is not None:
        what = "an index" if "index" in document["view"] else "a view"
        lines.append(f"{what} of table {document['view']['table']}, at its version {document['view']['version']}")
    for group, fields in (("row key", schema.row_key), ("sort key", schema.sort_key), ("values", schema.values)):
        lines += [f"{group}:"] if fields else []
        lines += [f"  {f.name.ljust(width)}  {name_of(f.returned_type)}{_remark(f)}" for f in fields]
    return lines


def _mode_text(mode: dict[str, Any]) -> str:
    functions = mode.get("functions", {})
    facts = [f"by {mode['by']}"] if "by" in mode else [f"{function} of {name}" for name, function in functions.items()]
    return f"{mode['mode']} {', '.join(facts)}".strip()


def _remark(field: lakebed.Field) -> str:
    if field.expression:
        return f", generated as {field.expression}"
    return ", may be null" if field.nullable else ""


@command
@options.table
@options.row_format
def files(cli: Invocation, *, table: str) -> None:
    """List data files, partition by partition.

    A file that spans several partitions is listed in each. Rows are those in the partition, with a ~ if they are an
    estimate; size and keys are those of the whole file.
    """
    found = cli.table(table)
    state = found.state()
    rows = file_rows(state, found.id, found.storage.object_url)
    bounds = [(key_text(r["min_key"]), key_text(r["max_key"])) for r in rows]
    cells = [
        (r["partition"], _row_count_text(r), size_text(r["size_bytes"]), *keys, r["version"], r["url"])
        for r, keys in zip(rows, bounds, strict=True)
    ]
    text = columns(("partition", "rows", "size", "min key", "max key", "version", "url"), cells)
    cli.out.document({"table": found.name, "version": state.version, "files": rows}, [text])


@command
@options.table
@options.row_format
def partitions(cli: Invocation, *, table: str) -> None:
    """List partitions: their key ranges, rows, files and parents.

    `runs` is the number of sorted runs that a read of the partition merges. The parents are the partitions that it was
    made of, by a split, a join or a restore. Below are the files to which no partition refers.
    """
    found = cli.table(table)
    state = found.state()
    rows = partition_rows(state)
    cells = [
        (
            r["partition"],
            key_text(r["min"]),
            key_text(r["max"]),
            _row_count_text(r),
            size_text(r["bytes"]),
            r["files"],
            r["runs"],
            ", ".join(map(str, r["parents"])),
        )
        for r in rows
    ]
    text = columns(("partition", "from", "to", "rows", "size", "files", "runs", "parents"), cells)
    unused = unreferenced_files(state)
    size = size_text(unused.size_bytes)
    below = [f"{count_text(unused.files, 'file')} of {size} without references"] if unused.files else []
    facts = {"unreferenced_files": unused.files, "unreferenced_bytes": unused.size_bytes}
    cli.out.document({"table": found.name, "version": state.version, "partitions": rows, **facts}, [text, *below])


def _row_count_text(row: dict[str, Any]) -> int | str:
    return row["rows"] if row["exact"] else f"{ABOUT}{row['rows']}"


@command
@options.table
@options.yes
def drop(cli: Invocation, *, table: str, yes: bool) -> None:
    """Drop a table; asks for its name first."""
    from lakebed.table.ahead import confirmed

    instance = confirmed(cli.instance())
    instance.table(table)
    if not yes:
        options.confirm(f"drop {table}", f"This drops table {table} and all its rows", table)
    instance.drop_table(table)
    cli.out.document({"table": table, "dropped": True}, [f"dropped table {table}"])


# -- lakebed table alter -------------------------------------------------------------------------------------------

_LADDERS = ", or ".join(" to ".join(ladder) for ladder in types.WIDENING) + ", or a decimal to one of more digits"
_CHANGES: dict[str, Callable[..., SchemaChange | FilterChange]] = {
    "add": lambda name, text: AddField(name, _type(text)),
    "drop": DropField,
    "rename": RenameField,
    "widen": lambda name, text: WidenField(name, _type(text)),
    "allow_nulls": AllowNulls,
    "filter": SetFilter,
    "no_filter": lambda _: SetFilter(None),
    "age_off": age_off_of,
    "no_age_off": lambda _: AgeOff(None),
}


@command
@options.table
@click.option("--add", metavar="NAME TYPE", nargs=2, help="Add a value field; existing rows have null in it.")
@click.option("--drop", metavar="NAME", help="Drop a value field.")
@click.option("--rename", metavar="NAME NEW_NAME", nargs=2, help="Rename a field; key fields can be renamed too.")
@click.option("--widen", metavar="NAME TYPE", nargs=2, help=f"Widen a value field: {_LADDERS}.")
@click.option("--allow-nulls", metavar="NAME", help="Make a value field nullable.")
@click.option("--filter", metavar="PREDICATE", help="Show only rows for which it is true, in SQL: 'n > 3'.")
@click.option("--no-filter", is_flag=True, help="Show all rows that still exist.")
@click.option(
    "--age-off",
    metavar="NAME=AGE",
    type=name_value,
    help="Hide rows with an older time: at=30d, at=12h, at='30d of ms'.",
)
@click.option("--no-age-off", is_flag=True, help="Remove the age-off.")
@click.option("--rename-to", metavar="NEW_NAME", help="Rename the table; nothing moves.")
@click.option("--online", is_flag=True, help="Compact and split the table when due.")
@click.option("--offline", is_flag=True, help="Do not compact or split the table.")
def alter(cli: Invocation, *, table: str, rename_to: str | None, online: bool, offline: bool, **changes: Any) -> None:
    """Change a table's schema, filter, name or state; no file is rewritten.

    Makes one change. A TYPE is Arrow's name, such as int64, string or "timestamp[us, tz=UTC]", or JSON for a nested
    type, such as '{"list": "string"}'.
    """
    schema_changes = {f"--{name.replace('_', '-')}": words for name, words in changes.items()}
    options.check_one({**schema_changes, "--rename-to": rename_to, "--online": online, "--offline": offline})
    if rename_to is not None:
        cli.instance().rename_table(table, rename_to)
        cli.out.document({"table": rename_to, "was": table}, [f"table {table} is now {rename_to}"])
    elif online or offline:
        cli.instance().set_online(table, online)
        text = f"table {table} is {'online' if online else 'offline'}"
        cli.out.document({"table": table, "online": online}, [text])
    else:
        ((name, given),) = ((name, given) for name, given in changes.items() if given)
        change = _CHANGES[name](*(given if isinstance(given, tuple) else (given,)))
        _change(cli, table, change)


def _change(cli: Invocation, name: str, change: SchemaChange | FilterChange) -> None:
    table = cli.table(name)
    version = table.alter(change)
    document = {"table": table.name, "version": version, "schema": table.schema.to_json()}
    lines = [describe(change)] if isinstance(change, SchemaChange) else filter_lines(filter_document(table.state()))
    cli.out.document(document, [f"table {table.name} at version {version}: {'; '.join(lines) or 'all rows are shown'}"])


def _type(text: str) -> Any:
    if not text.startswith("{"):
        return types.parse(text)
    try:
        return types.from_json(load(text))
    except UNREADABLE as error:
        raise Code.TYPE_INVALID(
            f"unknown type {shown(text)} ({error_text(error)}); see `lakebed table alter --help`"
        ) from error


# -- lakebed settings ----------------------------------------------------------------------------------------------


@command
@click.argument("table", metavar="[TABLE]", required=False, shell_complete=completions.tables)
@click.option(
    "--defaults", is_flag=True, help="List every setting with its unit, default and meaning; needs no instance."
)
@options.row_format
def show_settings(cli: Invocation, *, table: str | None, defaults: bool) -> None:
    """Show the settings in force.

    Without TABLE: the instance's defaults.
    """
    options.check_at_most_one({"TABLE": table, "--defaults": defaults})
    if defaults:
        described = settings.describe()
        rows = [(d.name, d.default, d.unit, d.help) for d in described]
        text = columns(("setting", "default", "unit", "meaning"), rows)
        cli.out.document({"settings": [asdict(d) for d in described]}, [text])
        return
    instance = cli.instance()
    _print_settings(cli, table, instance.settings() if table is None else instance.table(table).settings())


@command
@click.argument("words", metavar="[TABLE] NAME=VALUE...", nargs=-1, required=True, shell_complete=completions.settings)
def change_settings(cli: Invocation, *, words: tuple[str, ...]) -> None:
    """Change settings.

    Without TABLE: the instance's defaults, for all tables that do not set their own. An empty value (NAME=) restores
    the default.
    """
    table, texts = (None, words) if "=" in words[0] else (words[0], words[1:])
    if not texts:
        raise Code.ARGUMENT_MISSING(
            f"give NAME=VALUE after {table}; `lakebed settings show --defaults` lists the names"
        )
    changes = options.setting_changes([name_value(text) for text in texts])
    settings.validate(changes)
    instance = cli.instance()
    target = instance if table is None else instance.table(table)
    target.set(**changes)
    _print_settings(cli, table, target.settings())


def _print_settings(cli: Invocation, table: str | None, in_force: dict[str, Any]) -> None:
    rows = [(d.name, in_force[d.name], d.unit) for d in settings.describe()]
    cli.out.document({"table": table, "settings": in_force}, [columns(("setting", "value", "unit"), rows)])
