"""Output: text for people, JSON for programs; never both on stdout.

Values look as :mod:`lakebed.model.json_values` has them, in either, with binary as hex digits. In text, null is a minus
sign and characters that would move a terminal's cursor are escaped. Rows are printed batch by batch, in bounded memory.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakebed.errors import Error
from lakebed.model.json_values import encode_array, plain

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "-"
ABOUT = "~"
"""Stands before a number that is an estimate."""

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_GAP = "  "
_RECORDS_AT_ONCE = 500
"""Records of one batch are aligned; columns of later batches are at least as wide."""


@dataclass(frozen=True, slots=True)
class TextColumns:
    """A heading and rows; printed as a table of Rich on a terminal, otherwise as lines of text."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def texts(self, widths: list[int]) -> list[list[str]]:
        """The cells of the rows; ``widths`` grow to hold them, and are those of the heading before the first rows."""
        texts = [[shown(value) for value in row] for row in self.rows]
        widths[:] = widths or [len(name) for name in self.names]
        widths[:] = [max([width, *(len(row[i]) for row in texts)]) for i, width in enumerate(widths)]
        return texts

    def numeric(self) -> list[bool]:
        """Whether each column holds numbers only; their headings go to the right as well."""
        return [bool(self.rows) and all(_is_number(row[i]) for row in self.rows) for i in range(len(self.names))]

    def lines(self, widths: list[int]) -> Iterator[str]:
        """The heading, unless ``widths`` is set already, and the rows; numbers to the right."""
        heading = not widths
        texts = self.texts(widths)
        if heading:
            yield _line(self.names, self.numeric(), widths)
        for row, text in zip(self.rows, texts, strict=True):
            yield _line(text, [_is_number(value) for value in row], widths)


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> TextColumns:
    """Rows of Python values under a heading."""
    return TextColumns(names, [[plain(value) for value in row] for row in rows])


class Output:
    """Where a command's answer goes; ``keep`` receives its document."""

    def __init__(self, *, as_json: bool, keep: Callable[[Mapping[str, Any]], None] = lambda _: None) -> None:
        self.as_json = as_json
        self.keep = keep

    def document(self, document: Any, lines: Iterable[str | TextColumns]) -> None:
        """Print one answer: with ``--json`` the document (a mapping or a dataclass), otherwise the lines."""
        answer = plain(document)
        self.keep(answer)
        if self.as_json:
            print(json_text(answer))
        else:
            for line in lines:
                if isinstance(line, TextColumns):
                    _print_columns(line, [])
                else:
                    print(line)
        sys.stdout.flush()

    def rows(self, batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> int:
        """Print rows, as lines of JSON or as columns of text. Returns their number."""
        count = 0
        widths: list[int] = []
        for batch in batches:
            count += batch.num_rows
            rows = list(zip(*map(encode_array, batch.columns), strict=True))
            if self.as_json:
                _print_lines(json_text(dict(zip(names, row, strict=True))) for row in rows)
            else:
                _print_columns(TextColumns(names, rows), widths)
        return count

    def csv(self, batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> None:
        """Print rows as CSV; null and the empty text are both an empty cell."""
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        for batch in batches:
            columns = [[_in_csv(value) for value in encode_array(column)] for column in batch.columns]
            writer.writerows(zip(*columns, strict=True))
            sys.stdout.flush()

    def records(self, records: Iterable[Any], names: Sequence[str], cells: Callable[[Any], Sequence[Any]]) -> None:
        """Print values as they come, as lines of JSON, or as columns of text with the ``cells`` of each.

        Values before an error are printed before the error is raised.
        """
        widths: list[int] = []
        left = iter(records)
        failure: Error | None = None
        while failure is None:
            batch: list[Any] = []
            try:
                batch.extend(islice(left, _RECORDS_AT_ONCE))
            except Error as error:
                failure = error
            if not batch:
                break
            if self.as_json:
                _print_lines(json_text(plain(record)) for record in batch)
            else:
                _print_columns(columns(names, map(cells, batch)), widths)
        if failure is not None:
            raise failure

    def note(self, text: str) -> None:
        """Print a message to stderr, so that stdout has data only."""
        print(text, file=sys.stderr)


def _in_csv(value: Any) -> Any:
    """An encoded value as a CSV cell; the writer makes an empty cell of None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_text(value) if isinstance(value, dict | list) else value


def json_text(value: Any) -> str:
    """One line of strict JSON; requires what :func:`plain` or :func:`encode_array` gave."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


# -- text -------------------------------------------------------------------------------------------------------


def _print_lines(lines: Iterable[str]) -> None:
    # One write for each batch: a call for each line would take longer than the rows.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _print_columns(columns: TextColumns, widths: list[int]) -> None:
    """Print the heading, unless ``widths`` is set already, and the rows."""
    if not sys.stdout.isatty():
        _print_lines(columns.lines(widths))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), show_header=not widths)
    texts = columns.texts(widths)
    console = Console(file=sys.stdout, highlight=False)
    fits = sum(widths) + len(_GAP) * (len(widths) - 1) <= console.width
    for name, width, right in zip(columns.names, widths, columns.numeric(), strict=True):
        heading = Text(name, justify="right" if right else "left")
        table.add_column(heading, width=width if fits else None, overflow="fold")
    for row, text in zip(columns.rows, texts, strict=True):
        cells = zip(row, text, strict=True)
        table.add_row(*(Text(cell, justify="right" if _is_number(value) else "left") for value, cell in cells))
    console.print(table)


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value[:1] == ABOUT and value[1:].isdigit()
    return isinstance(value, int | float) and not isinstance(value, bool)


def _line(texts: Sequence[str], right: Sequence[bool], widths: Sequence[int]) -> str:
    cells = (t.rjust(w) if r else t.ljust(w) for t, r, w in zip(texts, right, widths, strict=True))
    return _GAP.join(cells).rstrip()


def shown(value: Any) -> str:
    """An encoded value on one line of text; characters that control a terminal are escaped."""
    match value:
        case None:
            return NULL
        case bool():
            return "true" if value else "false"
        case str():
            text = value
        case dict() | list():
            text = json_text(value)
        case _:
            return str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def key_text(values: Mapping[str, Any] | None) -> str:
    """The known fields of a bound, in one cell."""
    if values is None:
        return NULL
    known = [plain(value) for value in values.values() if value is not None]
    return ", ".join('""' if value == "" else shown(value) for value in known)


def size_text(size_bytes: float) -> str:
    """Bytes in the largest unit of which there is one."""
    unit = 0
    while size_bytes >= 1024 and unit < len(_UNITS) - 1:
        size_bytes /= 1024
        unit += 1
    return f"{size_bytes:.0f} {_UNITS[unit]}" if unit == 0 else f"{size_bytes:.1f} {_UNITS[unit]}"


def count_text(count: int, noun: str, *, exact: bool = True) -> str:
    """A number with its noun: ``1 partition``, ``2,000 rows``, ``about 7 files``."""
    return f"{'' if exact else 'about '}{count:,} {noun}{'' if count == 1 else 's'}"
