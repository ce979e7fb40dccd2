"""``lakebed write``, ``get``, ``scan``, ``explain`` and ``remove``: rows in, back by key, and away, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.inputs import kind_of, read_rows, rows_known
from lakebed.cli.progress import ProgressBar
from lakebed.cli.render import count_text
from lakebed.errors import UsageError
from lakebed.keys import KeyRange
from lakebed.objects import removal
from lakebed.report import removed

if TYPE_CHECKING:
    import argparse

    from lakebed.cli.render import Output
    from lakebed.schema import Schema

KEYS = """\
A key is given as words, one for each row key field in order: numbers, text, hex digits for binary, dates and
times in ISO 8601 (without an offset: UTC). A word that begins with a minus sign and is no number needs `--`
before it, or for an option the form --from=-x."""


def add_rows(commands: args.Commands) -> None:
    """``lakebed write``, ``get``, ``scan``, ``explain``, ``remove``."""
    write = args.add_command(
        commands,
        "write",
        "add the rows of files, in this process",
        _write,
        more="Takes Parquet, Arrow IPC and CSV (by its name: .csv, .csv.gz …). All files become visible at once,\n"
        "or none. With --commit-id a repeat adds nothing and prints the first number.",
    )
    write.add_argument("table", metavar="TABLE")
    write.add_argument("files", metavar="FILE", nargs="+", type=Path)
    write.add_argument("--commit-id", metavar="ID", help="what makes this write happen once, however often it is run")
    get = args.add_command(commands, "get", "print all rows of one key", _get, more=KEYS)
    get.add_argument("table", metavar="TABLE")
    get.add_argument("key", metavar="KEY", nargs="+", help="a word for each row key field")
    _add_columns(get)
    args.add_at(get)
    scan = args.add_command(
        commands,
        "scan",
        "print rows in key order",
        _scan,
        more="All rows, or those of the ranges given; ranges that overlap count once. Bounds may have fewer fields\n"
        f"than the key. Give TABLE before options that take several words.\n\n{KEYS}",
    )
    scan.add_argument("table", metavar="TABLE")
    add_ranges(scan)
    _add_columns(scan)
    scan.add_argument("--limit", metavar="ROWS", type=int, help="stop after so many rows")
    args.add_at(scan)
    explain = args.add_command(
        commands,
        "explain",
        "read a key or ranges, and print what that took instead of the rows",
        _explain,
        more="With KEY as get, else as scan: leaves and files met, files left out by bounds of keys and by filters,\n"
        f"row groups, pages and bytes read, the time of each step.\n\n{KEYS}",
    )
    explain.add_argument("table", metavar="TABLE")
    explain.add_argument("key", metavar="KEY", nargs="*", help="a word for each row key field; none: a scan")
    add_ranges(explain)
    _add_columns(explain)
    explain.add_argument("--limit", metavar="ROWS", type=int, help="stop after so many rows")
    args.add_at(explain)
    remove = args.add_command(
        commands,
        "remove",
        "take away the rows of key ranges; asks for the table's name first",
        _remove,
        more="Ranges are given as to scan; at least one. Older states of the table, and tags, still have the rows.\n"
        "With --fence, for good: writes and compactions that began before do not bring any back.",
    )
    remove.add_argument("table", metavar="TABLE")
    add_ranges(remove)
    remove.add_argument("--fence", action="store_true", help="keep out what began before")
    remove.add_argument("--dry-run", action="store_true", help="only say what would go")
    remove.add_argument("--yes", action="store_true", help="do not ask")


def add_ranges(parser: argparse.ArgumentParser) -> None:
    """Options that say which keys, for :func:`ranges_of`."""
    parser.add_argument("--from", metavar="KEY", nargs="+", dest="low", help="first key (inclusive)")
    parser.add_argument("--to", metavar="KEY", nargs="+", dest="high", help="end of the range (exclusive)")
    for option, text in (
        ("--prefix", "keys whose first fields equal these; may be repeated"),
        ("--starts-with", "as --prefix, but the last word, text or binary, need only begin so; may be repeated"),
    ):
        parser.add_argument(option, metavar="KEY", nargs="+", action="append", default=[], help=text)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", metavar="A,B", action="append", help="only these columns, in this order")


def _write(arguments: argparse.Namespace, out: Output) -> None:
    for path in arguments.files:
        kind_of(path)
    table = args.open_table(arguments)
    total = rows_known(arguments.files)
    read = 0
    with ProgressBar(f"write {table.name}") as bar:

        def progress(done: int) -> None:
            nonlocal read
            read = done
            bar.update(done, total)

        number = table.write(read_rows(arguments.files, table.schema, progress), commit_id=arguments.commit_id)
    document = {"table": table.name, "number": number, "rows_read": read}
    out.document(document, [f"table {table.name} at number {number}: {count_text(read, 'row')} read"])


def _get(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_view(arguments)
    key = args.key_values(table.schema, arguments.key)
    rows = table.get(*key, columns=args.names(arguments.columns))
    out.rows(rows.to_batches(), rows.column_names)
    if not rows.num_rows:
        out.note("no rows with that key")


def _scan(arguments: argparse.Namespace, out: Output) -> None:
    if arguments.limit is not None and arguments.limit < 0:
        raise UsageError(f"--limit {arguments.limit}: must be 0 or more")
    table = args.open_view(arguments)
    columns = args.names(arguments.columns)
    with table.scan(*ranges_of(arguments, table.schema), columns=columns, limit=arguments.limit) as reader:
        if not out.rows(reader, reader.schema.names):
            out.note("no rows there")


def _explain(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_view(arguments)
    asked = ranges_of(arguments, table.schema)
    if arguments.key and asked:
        raise UsageError("explain takes a KEY or ranges, not both")
    key = args.key_values(table.schema, arguments.key) if arguments.key else ()
    found = table.explain(*key, *asked, columns=args.names(arguments.columns), limit=arguments.limit)
    out.document({"table": arguments.table, **found.to_dict()}, found.lines())


def _remove(arguments: argparse.Namespace, out: Output) -> None:
    if not arguments.yes and not arguments.dry_run:
        args.check_answerable(f"whether to remove rows of {arguments.table}")
    table = args.open_table(arguments)
    ranges = ranges_of(arguments, table.schema)
    if not ranges:
        raise UsageError("nothing is removed without a range; give --from, --to, --prefix or --starts-with")
    going = removed(table.state(), removal(table.state(), table.storage, ranges))
    rows, document = count_text(going.rows, "row", exact=going.exact), {"table": table.name, "rows": going.rows}
    document |= {"exact": going.exact, "files": going.files, "fence": arguments.fence}
    if arguments.dry_run:
        out.document({**document, "dry_run": True, "number": None}, [f"would remove {rows} from table {table.name}"])
        return
    if not arguments.yes:
        args.ask_for(table.name, f"This removes {rows} from table {table.name}", out)
    number = table.remove(*ranges, fence=arguments.fence)
    text = f"table {table.name} at number {number}: {rows} removed"
    out.document({**document, "dry_run": False, "number": number}, [text])


def ranges_of(arguments: argparse.Namespace, schema: Schema) -> list[KeyRange]:
    """The ranges that the options of :func:`add_ranges` name; none if there are no such options."""
    ranges = [KeyRange.prefix(*args.key_values(schema, words)) for words in arguments.prefix]
    ranges += [KeyRange.starts_with(*args.key_values(schema, words)) for words in arguments.starts_with]
    if arguments.low or arguments.high:
        low, high = (args.key_values(schema, words) if words else None for words in (arguments.low, arguments.high))
        ranges.append(KeyRange(low, high))
    return ranges
