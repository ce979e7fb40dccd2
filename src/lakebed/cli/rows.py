"""Rows in, found and away, in this process: ``lakebed write``, ``get``, ``scan`` and others."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.cli import arguments as args
from lakebed.cli.inputs import input_file, is_remote, kind_of, read_rows, rows_known
from lakebed.cli.progress import ProgressBar
from lakebed.cli.render import ABOUT, count_text
from lakebed.errors import UsageError
from lakebed.history import committed_on_interrupt
from lakebed.keys import KeyRange
from lakebed.query.cutting import removal
from lakebed.report import removed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    import lakebed
    from lakebed.cli.render import Output
    from lakebed.schema import Schema
    from lakebed.view import View

KEYS = """\
A key is given as words, one for each row key field in order: numbers, text, hex digits for binary, dates and
times in ISO 8601 (without an offset: UTC). A word that begins with a minus sign and is no number needs `--`
before it, or for an option the form --from=-x."""


def add_rows(commands: args.Commands) -> None:
    """``lakebed write``, ``get``, ``get-many``, ``scan``, ``count``, ``sample``, ``explain``, ``remove``."""
    write = args.add_command(
        commands,
        "write",
        "add the rows of files, in this process",
        _write,
        more="Takes Parquet, Arrow IPC and CSV (by its name: .csv, .csv.gz …), local or s3://… and such. All files\n"
        "become visible at once, or none. With --commit-id a repeat adds nothing and prints the first number.",
    )
    write.add_argument("table", metavar="TABLE")
    write.add_argument("files", metavar="FILE", nargs="+")
    write.add_argument("--commit-id", metavar="ID", help="what makes this write happen once, however often it is run")
    _add_gets(commands)
    _add_scan(commands)
    _add_counts(commands)
    _add_explain(commands)
    _add_remove(commands)


def _add_gets(commands: args.Commands) -> None:
    get = args.add_command(commands, "get", "print all rows of one key", _get, more=KEYS)
    get.add_argument("table", metavar="TABLE")
    get.add_argument("key", metavar="KEY", nargs="+", help="a word for each row key field")
    _add_columns(get)
    args.add_at(get)
    many = args.add_command(
        commands,
        "get-many",
        "print all rows of many keys, in key order",
        _get_many,
        more="A text file with one key a line, its fields as in CSV, each as for get. A key that comes twice counts\n"
        "once.",
    )
    many.add_argument("table", metavar="TABLE")
    many.add_argument("keys", metavar="FILE", type=Path, help="one key a line")
    _add_columns(many)
    args.add_at(many)


def _add_scan(commands: args.Commands) -> None:
    scan = args.add_command(
        commands,
        "scan",
        "print rows in key order",
        _scan,
        more="All rows, or those of the ranges given; ranges that overlap count once. Bounds may have fewer fields\n"
        f"than the key. Give TABLE before options that take several words.\n\n{KEYS}",
    )
    scan.add_argument("table", metavar="TABLE")
    _add_asked(scan)


def _add_asked(parser: argparse.ArgumentParser) -> None:
    """The options that say which rows a scan reads, and how."""
    add_ranges(parser)
    _add_columns(parser)
    args.add_where(parser)
    parser.add_argument("--limit", metavar="ROWS", type=int, help="stop after so many rows")
    parser.add_argument("--reverse", action="store_true", help="the last row first")
    args.add_at(parser)


def _add_counts(commands: args.Commands) -> None:
    count = args.add_command(
        commands,
        "count",
        "say how many rows there are",
        _count,
        more="All rows, or those of the ranges given, as to scan. Where a range cuts a file, an estimate (~) that\n"
        "is off by at most 0.1% of the file's rows at each end; --exact looks at the keys there.",
    )
    count.add_argument("table", metavar="TABLE")
    add_ranges(count)
    count.add_argument("--exact", action="store_true", help="no estimate")
    args.add_at(count)
    sample = args.add_command(
        commands,
        "sample",
        "print rows by chance, in key order",
        _sample,
        more="Every row is as likely as any other, and none comes twice.",
    )
    sample.add_argument("table", metavar="TABLE")
    sample.add_argument("rows", metavar="ROWS", type=int, help="how many")
    sample.add_argument("--seed", metavar="N", type=int, help="the same seed gives the same rows of the same number")
    _add_columns(sample)
    args.add_at(sample)


def _add_explain(commands: args.Commands) -> None:
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
    _add_asked(explain)


def _add_remove(commands: args.Commands) -> None:
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
    for text in arguments.files:
        if not is_remote(text):
            kind_of(input_file(text))
    table = args.open_table(arguments)
    files = [input_file(text, table.storage) for text in arguments.files]
    total = rows_known(files)
    read = 0
    with ProgressBar(f"write {table.name}") as bar:

        def progress(done: int) -> None:
            nonlocal read
            read = done
            bar.update(done, total)

        limit = table.settings_in_force().value_bytes_max
        rows = read_rows(files, table.schema, progress, value_bytes_max=limit)
        with committed_on_interrupt(table.log):
            number = table.write(rows, commit_id=arguments.commit_id)
    document = {"table": table.name, "number": number, "rows_read": read}
    out.document(document, [f"table {table.name} at number {number}: {count_text(read, 'row')} read"])


def _get(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_view(arguments)
    key = args.key_values(table.schema, arguments.key)
    rows = table.get(*key, columns=args.names(arguments.columns))
    _print(rows, out, "no rows with that key")


def _get_many(arguments: argparse.Namespace, out: Output) -> None:
    lines = args.csv_lines(arguments.keys)
    table = args.open_view(arguments)
    keys = [args.key_values(table.schema, words) for words in lines]
    _print(table.get_many(keys, columns=args.names(arguments.columns)), out, "no rows with these keys")


def _print(rows: pa.Table, out: Output, nothing: str) -> None:
    out.rows(rows.to_batches(), rows.column_names)
    if not rows.num_rows:
        out.note(nothing)


def _scan(arguments: argparse.Namespace, out: Output) -> None:
    if arguments.limit is not None and arguments.limit < 0:
        raise UsageError(f"--limit {arguments.limit}: must be 0 or more")
    table = args.open_view(arguments)
    columns = args.names(arguments.columns)
    ranges = ranges_of(arguments, table.schema)
    asked = {"where": arguments.where, "limit": arguments.limit, "reverse": arguments.reverse}
    with table.scan(*ranges, columns=columns, **asked) as stream, _watched(f"scan {arguments.table}") as bar:
        # Whoever sees the rows themselves needs no bar.
        total = None if bar is None or arguments.where else _expected(table, ranges, arguments.limit)
        if not out.rows(_counted(stream, bar, total), stream.schema.names):
            out.note("no rows there")


def _watched(what: str) -> AbstractContextManager[ProgressBar | None]:
    """A bar, if somebody looks at a terminal to which the rows do not go."""
    return ProgressBar(what) if sys.stderr.isatty() and not sys.stdout.isatty() else nullcontext()


def _expected(table: lakebed.Table | View, ranges: Sequence[KeyRange], limit: int | None) -> int:
    rows = table.count(*ranges).rows
    return rows if limit is None else min(rows, limit)


def _counted(batches: Iterable[pa.RecordBatch], bar: ProgressBar | None, total: int | None) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        if bar is not None:
            bar.update(done, total)


def _count(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_view(arguments)
    found = table.count(*ranges_of(arguments, table.schema), exact=arguments.exact)
    document = {"table": arguments.table, "number": table.number, "rows": found.rows, "exact": found.exact}
    document |= {"rows_min": found.rows_min, "rows_max": found.rows_max}
    out.document(document, [f"{'' if found.exact else ABOUT}{found.rows}"])


def _sample(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_view(arguments)
    _print(
        table.sample(arguments.rows, columns=args.names(arguments.columns), seed=arguments.seed), out, "no rows there"
    )


def _explain(arguments: argparse.Namespace, out: Output) -> None:
    table = args.open_view(arguments)
    asked = ranges_of(arguments, table.schema)
    if arguments.key and asked:
        raise UsageError("explain takes a KEY or ranges, not both")
    key = args.key_values(table.schema, arguments.key) if arguments.key else ()
    found = table.explain(
        *key,
        *asked,
        columns=args.names(arguments.columns),
        where=arguments.where,
        limit=arguments.limit,
        reverse=arguments.reverse,
    )
    out.document({"table": arguments.table, **found.to_dict()}, found.lines())


def _remove(arguments: argparse.Namespace, out: Output) -> None:
    if not arguments.yes and not arguments.dry_run:
        args.check_answerable(f"whether to remove rows of {arguments.table}")
    table = args.open_table(arguments)
    ranges = ranges_of(arguments, table.schema)
    if not ranges:
        raise UsageError("nothing is removed without a range; give --from, --to, --prefix or --starts-with")
    view = table.newest()
    going = removed(view.state, removal(view.state, view.reader, table.storage, ranges))
    rows, document = count_text(going.rows, "row", exact=going.exact), {"table": table.name, "rows": going.rows}
    document |= {"exact": going.exact, "files": going.files, "fence": arguments.fence}
    if arguments.dry_run:
        out.document({**document, "dry_run": True, "number": None}, [f"would remove {rows} from table {table.name}"])
        return
    if not arguments.yes:
        args.ask_for(table.name, f"This removes {rows} from table {table.name}", out)
    with committed_on_interrupt(table.log):
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
