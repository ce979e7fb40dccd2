"""``lakebed init`` and ``lakebed table``: instances and the tables in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakebed
from lakebed.cli import arguments as args
from lakebed.cli.inputs import arrow_schema, read_text
from lakebed.cli.render import count_text, size_text
from lakebed.cli.repair import add_repair
from lakebed.errors import UsageError
from lakebed.state.sums import file_sizes, table_rows

if TYPE_CHECKING:
    import argparse

    from lakebed.cli.render import Output

_SCHEMA_FORM = """\
A schema file is JSON: {"row_key": {"device": "string"}, "sort_key": {"at": "timestamp[us, tz=UTC]"},
"values": {"reading": "double"}}, or the "schema" in what `table show --json` prints. With --schema-from,
columns that are not keys become values. Split points are keys at which the table is cut into leaves from
the start: a text file of one key a line, its fields as in CSV. A key field with the type
{"type": "date32", "generated": "cast(at as date)"} is computed for every row (docs/import.md)."""


def add_init(commands: args.Commands) -> None:
    """``lakebed init``."""
    parser = args.add_command(commands, "init", "make a new instance", _init)
    parser.add_argument("url", metavar="URL", nargs="?", help="where: a path, file://, s3://, gs:// or az://")
    parser.add_argument("--among-others", action="store_true", help="even if the folder holds other files")


def add_table(commands: args.Commands) -> None:
    """``lakebed table …``."""
    noun = args.add_noun(commands, "table", "make, list, show, rename and drop tables")
    create = args.add_command(noun, "create", "make an empty table", _create, more=_SCHEMA_FORM)
    create.add_argument("table", metavar="NAME")
    source = create.add_mutually_exclusive_group(required=True)
    source.add_argument("--schema", metavar="FILE", type=Path, help="a JSON file with the schema")
    source.add_argument("--schema-from", metavar="FILE", type=Path, help="take columns and types of a data file")
    create.add_argument("--row-key", metavar="A,B", action="append", help="row key columns, with --schema-from")
    create.add_argument("--sort-key", metavar="C", action="append", help="sort key columns, with --schema-from")
    create.add_argument("--split-points", metavar="FILE", type=Path, help="keys to cut the table at, one a line")
    create.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a setting; may be repeated")
    create.add_argument("--offline", action="store_true", help="neither compact nor split it until table online")
    args.add_command(noun, "list", "name all tables", _list)
    show = args.add_command(noun, "show", "show a table's schema and size", _show)
    show.add_argument("table", metavar="TABLE")
    rename = args.add_command(noun, "rename", "give a table another name; nothing moves", _rename)
    rename.add_argument("table", metavar="TABLE")
    rename.add_argument("name", metavar="NEW_NAME")
    drop = args.add_command(noun, "drop", "take a table away; asks for its name first", _drop)
    drop.add_argument("table", metavar="TABLE")
    drop.add_argument("--yes", action="store_true", help="do not ask")
    for name, what in (("online", "compact and split a table"), ("offline", "no longer compact and split a table")):
        parser = args.add_command(noun, name, f"{what} when it is due", _set_online)
        parser.add_argument("table", metavar="TABLE")
        parser.set_defaults(online=name == "online")
    add_repair(noun)


def _init(arguments: argparse.Namespace, out: Output) -> None:
    url = arguments.url or args.instance_url(arguments)
    instance = lakebed.create(
        url,
        storage_options=args.storage_options(arguments),
        log_url=arguments.log_url,
        among_others=arguments.among_others,
    )
    document = {"url": instance.url, "instance": instance.id, "log_url": instance.log_url}
    out.document(document, [f"made an instance at {instance.url}"])


def _create(arguments: argparse.Namespace, out: Output) -> None:
    schema = _schema(arguments)
    points = _split_points(arguments.split_points, schema) if arguments.split_points else []
    settings = args.setting_changes(arguments.set, "--set")
    instance = args.open_instance(arguments)
    table = instance.create_table(
        arguments.table, schema, split_points=points, settings=settings, online=not arguments.offline
    )
    leaves = len(points) + 1
    out.document(
        {"table": table.name, "id": table.id, "number": table.number, "leaves": leaves},
        [f"made table {table.name} with {count_text(leaves, 'leaf')}"],
    )


def _schema(arguments: argparse.Namespace) -> lakebed.Schema:
    row_key, sort_key = args.names(arguments.row_key), args.names(arguments.sort_key)
    if arguments.schema is not None:
        if row_key or sort_key:
            raise UsageError("--row-key and --sort-key go with --schema-from; a schema file names its keys itself")
        return lakebed.Schema.from_json(read_text(arguments.schema))
    if not row_key:
        raise UsageError("--schema-from needs --row-key: which columns are the rows found by?")
    return lakebed.Schema.from_arrow(arrow_schema(arguments.schema_from), row_key, sort_key or [])


def _split_points(path: Path, schema: lakebed.Schema) -> list[tuple[Any, ...]]:
    return [args.key_values(schema, texts) for texts in args.csv_lines(path)]


def _list(arguments: argparse.Namespace, out: Output) -> None:
    tables = args.open_instance(arguments).tables()
    out.document({"tables": tables}, tables)


def _show(arguments: argparse.Namespace, out: Output) -> None:
    instance = args.open_instance(arguments)
    table = instance.table(arguments.table)
    state = table.state()
    rows, error_rows = table_rows(state)
    used = file_sizes(state).values()
    document = {
        "table": table.name,
        "id": table.id,
        "online": instance.is_online(table.name),
        "number": state.number,
        "rows": rows,
        "exact": not error_rows,
        "rows_min": max(0, rows - error_rows),
        "rows_max": rows + error_rows,
        "leaves": len(state.leaves.ids),
        "files": len(used),
        "bytes": sum(used),
        "schema": table.schema.to_json(),
    }
    out.document(document, _show_lines(document, table.schema))


def _show_lines(document: dict[str, Any], schema: lakebed.Schema) -> list[str]:
    rows = count_text(document["rows"], "row", exact=document["exact"])
    counts = (
        rows
        if document["exact"]
        else f"{rows} (no fewer than {document['rows_min']:,}, no more than {document['rows_max']:,})",
        count_text(document["files"], "file"),
        size_text(document["bytes"]),
        count_text(document["leaves"], "leaf"),
    )
    width = max(len(name) for name in schema.names)
    lines = [
        f"table {document['table']}, {'online' if document['online'] else 'offline'}, at number {document['number']}",
        ", ".join(counts),
    ]
    for group, fields in (("row key", schema.row_key), ("sort key", schema.sort_key), ("values", schema.values)):
        lines += [f"{group}:"] if fields else []
        lines += [f"  {f.name.ljust(width)}  {f.type}{_remark(f)}" for f in fields]
    return lines


def _remark(field: lakebed.Field) -> str:
    if field.expression:
        return f", generated as {field.expression}"
    return ", may be null" if field.nullable else ""


def _rename(arguments: argparse.Namespace, out: Output) -> None:
    args.open_instance(arguments).rename_table(arguments.table, arguments.name)
    document = {"table": arguments.name, "was": arguments.table}
    out.document(document, [f"table {arguments.table} is now {arguments.name}"])


def _drop(arguments: argparse.Namespace, out: Output) -> None:
    name = arguments.table
    if not arguments.yes:
        args.check_answerable(f"whether to drop {name}")
    instance = args.open_instance(arguments)
    instance.table(name)
    if not arguments.yes:
        args.ask_for(name, f"This drops table {name} and all its rows", out)
    instance.drop_table(name)
    out.document({"table": name, "dropped": True}, [f"dropped table {name}"])


def _set_online(arguments: argparse.Namespace, out: Output) -> None:
    args.open_instance(arguments).set_online(arguments.table, arguments.online)
    document = {"table": arguments.table, "online": arguments.online}
    out.document(document, [f"table {arguments.table} is {'online' if arguments.online else 'offline'}"])
