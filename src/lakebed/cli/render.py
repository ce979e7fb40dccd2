"""Output: text or JSON, never both on stdout.

Values look as :mod:`lakebed.model.json_values` has them, in either, with binary as hex digits. In text, null is a minus
sign and characters that would move a terminal's cursor are escaped. Rows are printed batch by batch, in bounded memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lakebed.cli.fitting import CUT, GAP, cells, cut, fit, padded
from lakebed.cli.row_formats import write_records, write_rows
from lakebed.errors import Error
from lakebed.model.json_values import encode_rows, json_text, plain
from lakebed.model.wording import count_text, printable

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "-"
ABOUT = "~"
"""Stands before a number that is an estimate."""

_RECORDS_AT_ONCE = 500
"""Records of one batch are aligned; columns of later batches are at least as wide."""


class TextColumns(Struct, frozen=True):
    """A heading and rows, printed as lines of text; on a terminal they are made to fit its width."""

    names: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def texts(self, widths: list[int]) -> list[list[str]]:
        """Return the cells of the rows; ``widths`` grow to hold them, and begin as those of the heading."""
        texts = [[shown(value) for value in row] for row in self.rows]
        widths[:] = widths or [cells(name) for name in self.names]
        widths[:] = [max([width, *(cells(row[i]) for row in texts)]) for i, width in enumerate(widths)]
        return texts

    def numeric(self) -> list[bool]:
        """Return whether each column holds numbers only; their headings go to the right as well."""
        return [bool(self.rows) and all(_is_number(row[i]) for row in self.rows) for i in range(len(self.names))]

    def lines(self, widths: list[int]) -> Iterator[str]:
        """Return the heading, unless ``widths`` is set already, and the rows; numbers to the right."""
        heading = not widths
        texts = self.texts(widths)
        if heading:
            yield _line(self.names, self.numeric(), widths)
        for row, text in zip(self.rows, texts, strict=True):
            yield _line(text, [_is_number(value) for value in row], widths)


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> TextColumns:
    """Return rows of Python values under a heading."""
    return TextColumns(names, [[plain(value) for value in row] for row in rows])


class Output:
    """The output of a command; ``keep`` receives its document.

    ``row_format`` is one of :data:`lakebed.cli.row_formats.FORMATS`, for rows and listings. ``quiet`` omits notes;
    ``paged`` shows a table that is longer than the terminal in a pager.
    """

    def __init__(
        self,
        *,
        as_json: bool,
        keep: Callable[[Mapping[str, Any]], None] = lambda _: None,
        row_format: str | None = None,
        quiet: bool = False,
        paged: bool = False,
    ) -> None:
        self.as_json = as_json
        self.keep = keep
        self.row_format = None if row_format == "table" else row_format
        self._quiet = quiet
        self._paged = paged

    @property
    def for_programs(self) -> bool:
        """Whether the output is in a machine-readable format, which must be complete and contain nothing else."""
        return self.as_json or self.row_format is not None

    def document(self, document: Any, lines: Iterable[str | TextColumns]) -> None:
        """Print one answer: with ``--json`` the document (a mapping or a dataclass), otherwise the lines.

        With ``--format`` the document has one list, whose items are printed.
        """
        answer = plain(document)
        self.keep(answer)
        if self.row_format is not None:
            records, names = _records_of(answer)
            write_records(self.row_format, records, names)
        elif self.as_json:
            print(json_text(answer))
        else:
            with self._pages():
                for line in lines:
                    if isinstance(line, TextColumns):
                        _print_columns(line, [])
                    else:
                        print(line)
        sys.stdout.flush()

    def rows(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        """Print rows, as lines of JSON, as columns of text or in the format that is set. Returns their number."""
        if self.row_format is not None or self.as_json:
            return write_rows(self.row_format or "jsonl", schema, batches)
        count = 0
        widths: list[int] = []
        with self._pages():
            for batch in batches:
                count += batch.num_rows
                rows = list(encode_rows(batch))
                _print_columns(TextColumns(schema.names, rows), widths)
        return count

    def records(
        self,
        records: Iterable[Any],
        names: Sequence[str],
        cells: Callable[[Any], Sequence[Any]],
        document: Callable[[Any], Any] = lambda record: record,
    ) -> None:
        """Print values as they arrive: the ``document`` of each as a line of JSON, or its ``cells`` as columns of text.

        Values before an error are printed before the error is raised.
        """
        if self.row_format is not None:
            found = [plain(document(record)) for record in records]
            write_records(self.row_format, found, list(found[0]) if found else names)
            return
        widths: list[int] = []
        left = iter(records)
        failure: Error | None = None
        with self._pages():
            while failure is None:
                batch: list[Any] = []
                try:
                    batch.extend(islice(left, _RECORDS_AT_ONCE))
                except Error as error:
                    failure = error
                if not batch:
                    break
                if self.as_json:
                    _print_lines(json_text(plain(document(record))) for record in batch)
                else:
                    _print_columns(columns(names, map(cells, batch)), widths)
        if failure is not None:
            raise failure

    def _pages(self) -> AbstractContextManager[None]:
        if not self._paged or not sys.stdout.isatty():
            return nullcontext()
        from lakebed.cli.pager import paged

        return paged()

    def note(self, text: str) -> None:
        """Print a message to stderr, so that stdout has data only; nothing with ``--quiet``."""
        if not self._quiet:
            print(text, file=sys.stderr)


def _records_of(answer: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records of a listing, and their names: the items of the one list or mapping in the document."""
    ((title, items),) = ((name, value) for name, value in answer.items() if isinstance(value, list | dict))
    if isinstance(items, dict):
        items = [{"name": name, "value": value} for name, value in items.items()]
    one = title.removesuffix("s")
    records = [item if isinstance(item, dict) else {one: item} for item in items]
    return records, list(records[0]) if records else [one]


# -- text -------------------------------------------------------------------------------------------------------


def _print_lines(lines: Iterable[str]) -> None:
    # One write for each batch: a call for each line would take longer than the rows.
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _print_columns(columns: TextColumns, widths: list[int]) -> None:
    """Print the heading, unless ``widths`` is set already, and the rows; on a terminal as wide as that."""
    if not sys.stdout.isatty():
        _print_lines(columns.lines(widths))
        return
    import shutil  # imports five compression modules, which other output does not need

    heading = not widths
    texts = columns.texts(widths)
    shown_widths = fit(widths, shutil.get_terminal_size().columns)
    _print_lines(_fitted(columns, texts, shown_widths, heading=heading))
    if heading and None in shown_widths:
        left_out = [name for name, width in zip(columns.names, shown_widths, strict=True) if width is None]
        print(
            f"{count_text(len(left_out), 'column')} not shown, since they do not fit: {cut(', '.join(left_out), 200)}; "
            "--format csv has all",
            file=sys.stderr,
        )


def _fitted(
    columns: TextColumns, texts: Sequence[Sequence[str]], widths: Sequence[int | None], *, heading: bool
) -> Iterator[str]:
    """Return lines of cells that are cut to the widths, with an ellipsis in place of columns that are left out."""
    gap = widths.index(None) if None in widths else None
    shown_columns = [i for i, width in enumerate(widths) if width is not None or i == gap]
    fitted_widths = [widths[i] or len(CUT) for i in shown_columns]

    def line(row: Sequence[str], right: Sequence[bool]) -> str:
        chosen = [CUT if i == gap else cut(row[i], widths[i] or 1) for i in shown_columns]
        return _line(chosen, [right[i] for i in shown_columns], fitted_widths)

    if heading:
        yield _bold(line(columns.names, columns.numeric()))
    for row, text in zip(columns.rows, texts, strict=True):
        yield line(text, [_is_number(value) for value in row])


def _bold(text: str) -> str:
    """Bold on a terminal, unless the user wants no colours (https://no-color.org)."""
    return text if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else f"\x1b[1m{text}\x1b[0m"


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value[:1] == ABOUT and value[1:].isdigit()
    return isinstance(value, int | float) and not isinstance(value, bool)


def _line(texts: Sequence[str], right: Sequence[bool], widths: Sequence[int]) -> str:
    fitted = (padded(t, w, right=r) for t, r, w in zip(texts, right, widths, strict=True))
    return (" " * GAP).join(fitted).rstrip()


def shown(value: Any) -> str:
    """Return an encoded value on one line of text; characters that control a terminal are escaped."""
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
    return printable(text)


def key_text(values: Mapping[str, Any] | None) -> str:
    """Return the known fields of a bound, in one cell."""
    if values is None:
        return NULL
    known = [plain(value) for value in values.values() if value is not None]
    return ", ".join('""' if value == "" else shown(value) for value in known)
