"""Output: text, JSON, or rows in a format for other programs, never two of them on stdout.

Values look as :mod:`lakebed.model.json_values` has them, in either, with binary as hex digits. In text, null is a minus
sign and characters that would move a terminal's cursor are escaped. Rows are printed batch by batch, in bounded memory.

*Formats.* :mod:`lakebed.files.formats.row_chunks` makes the chunks of ``--format``; Markdown, which only people read,
is made here. Records of a listing may be nested: in JSON they are as with ``--json``, elsewhere nested values are JSON
text.

*Widths.* On a terminal long cells are cut, the longest first, with an ellipsis: texts at the end, names and paths in
the middle, figures never, and times lose the parts of a second. If that is not enough, columns of texts are left out,
and then those in the middle. Not Rich's tables, which need all rows at once and cut figures.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from lakebed.errors import Code, Error
from lakebed.model.json_values import encode_rows, json_bytes, json_text, plain
from lakebed.model.text_cells import CUT, GAP, cells, shorten, text_line
from lakebed.model.wording import count_text, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.files.formats.row_chunks import Chunks


FORMATS = ("table", "csv", "json", "jsonl", "markdown", "arrow", "parquet")
BINARY = ("arrow", "parquet")
"""Formats with an end."""


def check_terminal(row_format: str | None) -> None:
    """Raise UsageError for a binary format on a terminal."""
    if row_format in BINARY and sys.stdout.isatty():
        raise Code.ARGUMENT_INVALID(
            f"--format {row_format} is binary, and stdout is a terminal; redirect it (> rows.{row_format}), or choose "
            "table, csv, json, jsonl or markdown"
        )


def write_rows(row_format: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows in any format but table. Returns their number."""
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            yield batch
            rows += batch.num_rows

    _write(row_format, _chunks(row_format)(schema, counted()))
    return rows


def write_records(row_format: str, records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> None:
    """Write the records of a listing, which are JSON values, in any format but table."""
    from lakebed.files.formats.row_chunks import lines_as_array

    lines = (json_bytes(record) + b"\n" for record in records)
    match row_format:
        case "jsonl":
            _write(row_format, lines)
        case "json":
            _write(row_format, lines_as_array(lines))
        case _:
            import pyarrow as pa

            rows = pa.table({name: _column([record.get(name) for record in records]) for name in names})
            write_rows(row_format, rows.schema, rows.to_batches())


def _chunks(row_format: str) -> Chunks:
    from lakebed.files.formats import row_chunks

    return {
        "csv": row_chunks.csv_lines,
        "json": row_chunks.json_array,
        "jsonl": row_chunks.json_lines,
        "markdown": _markdown,
        "arrow": row_chunks.arrow_stream,
        "parquet": row_chunks.parquet_file,
    }[row_format]


def _write(row_format: str, chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        if row_format in BINARY:
            sys.stdout.buffer.write(chunk)
        else:
            sys.stdout.write(chunk.decode())
        sys.stdout.flush()


def _markdown(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    names = schema.names
    yield (_markdown_row(names) + _markdown_row(["---"] * len(names))).encode()
    for batch in batches:
        yield "".join(map(_markdown_row, encode_rows(batch))).encode()


def _markdown_row(values: Iterable[Any]) -> str:
    texts = ("" if v is None else v if isinstance(v, str) else json_text(v) for v in values)
    return f"| {' | '.join(map(_markdown_cell, texts))} |\n"


def _markdown_cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\r\n", "<br>").replace("\n", "<br>")


def _column(values: list[Any]) -> pa.Array:
    """Return an Arrow array of JSON values; nested values, and values of several types, become text."""
    import pyarrow as pa

    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {int, float} or (len(kinds) == 1 and not kinds & {dict, list}):
        return pa.array(values)
    return pa.array([value if value is None or isinstance(value, str) else json_text(value) for value in values])


NARROWEST = 12
"""A cell that is cut has at least this many characters; a column that is narrower by itself is never cut."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", re.ASCII)
FIGURE_CHARS = 24
"""A figure, or two with their units, is not longer."""


def fit(widths: Sequence[int], width: int, whole: Collection[int] = ()) -> list[int | None]:
    """Return the width of each column in a table of at most ``width`` characters; None for those that are left out.

    Columns in ``whole``, by their positions, are never cut, and are left out after the others. Those in the middle go
    first; the first and the last column stay, whatever the width.
    """
    least = [length if column in whole else min(length, NARROWEST) for column, length in enumerate(widths)]
    shown = list(range(len(widths)))
    left_out: list[int] = []

    def is_too_wide(columns: Collection[int]) -> bool:
        return _row_width([least[column] for column in columns], len(widths)) > width

    while len(shown) > 2 and is_too_wide(shown):
        middle = [column for column in shown[1:-1] if column not in whole] or shown[1:-1]
        left_out.append(middle[len(middle) // 2])
        shown.remove(left_out[-1])
    # The last one may have been wide enough for others that had to go before it.
    for column in reversed(left_out):
        if not is_too_wide([*shown, column]):
            shown = sorted([*shown, column])
    found = {column: widths[column] for column in shown}
    while (excess := _row_width(list(found.values()), len(widths)) - width) > 0:
        longest = max((length for column, length in found.items() if length > least[column]), default=0)
        if not longest:
            break
        wide = [column for column, length in found.items() if length == longest > least[column]]
        next_longest = max([NARROWEST, *(length for length in found.values() if length < longest)])
        excess_width = min(longest - next_longest, -(-excess // len(wide)))
        for column in wide:
            found[column] -= excess_width
    return [found.get(column) for column in range(len(widths))]


def _row_width(widths: Sequence[int], columns: int) -> int:
    """Return the width of a row of these columns, with the mark of those that are left out of ``columns``."""
    return sum(widths) + GAP * (len(widths) - 1) + (len(widths) < columns) * (GAP + len(CUT))


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

    def whole(self, texts: Sequence[Sequence[str]]) -> set[int]:
        """Return the columns of figures, whose cells are never cut: ``10000``, ``~7``, ``12 runs, 3.1 GiB``."""
        return {i for i in range(len(self.names)) if texts and all(_is_figure(row[i]) for row in texts)}

    def without_empty(self) -> TextColumns:
        """Return the columns of which some row has a text."""
        kept = [i for i in range(len(self.names)) if any(row[i] != "" for row in self.rows)]
        return TextColumns([self.names[i] for i in kept], [[row[i] for i in kept] for row in self.rows])

    def fitted(self, width: int, widths: list[int]) -> tuple[list[str], list[str]]:
        """Return lines of at most ``width`` characters, the heading first unless ``widths`` is set, and the names of
        columns that are left out.
        """
        heading = not widths
        texts = self.texts(widths)
        if _row_width(widths, len(widths)) > width:
            texts = [[_in_seconds(text) for text in row] for row in texts]
            widths[:] = [max([cells(name), *(cells(row[i]) for row in texts)]) for i, name in enumerate(self.names)]
        shown_widths = fit(widths, width, self.whole(texts))
        left_out = [name for name, length in zip(self.names, shown_widths, strict=True) if length is None]
        return list(_fitted(self, texts, shown_widths, heading=heading)), left_out

    def lines(self, widths: list[int]) -> Iterator[str]:
        """Return the heading, unless ``widths`` is set already, and the rows; numbers to the right."""
        heading = not widths
        texts = self.texts(widths)
        if heading:
            yield text_line(self.names, self.numeric(), widths)
        for row, text in zip(self.rows, texts, strict=True):
            yield text_line(text, [_is_number(value) for value in row], widths)


def columns(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> TextColumns:
    """Return rows of Python values under a heading."""
    return TextColumns(names, [[plain(value) for value in row] for row in rows])


class Output:
    """The output of a command; ``keep`` receives its document.

    ``row_format`` is one of :data:`lakebed.cli.render.FORMATS`, for rows and listings. ``quiet`` omits notes;
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
                        _print_columns(line, [], "--json")
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


def _print_columns(columns: TextColumns, widths: list[int], complete: str = "--format csv") -> None:
    """Print the heading, unless ``widths`` is set already, and the rows; on a terminal as wide as that.

    ``complete`` is the option with which the command prints all columns.
    """
    if not sys.stdout.isatty():
        _print_lines(columns.lines(widths))
        return

    import shutil  # imports five compression modules, which other output does not need

    heading = not widths
    lines, left_out = columns.fitted(shutil.get_terminal_size().columns, widths)
    _print_lines([bold(lines[0]), *lines[1:]] if heading else lines)
    if heading and left_out:
        names = shorten(", ".join(left_out), 200)
        print(
            f"{count_text(len(left_out), 'column')} not shown, since they do not fit: {names}; {complete} has all",
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
        chosen = [CUT if i == gap else shorten(row[i], widths[i] or 1) for i in shown_columns]
        return text_line(chosen, [right[i] for i in shown_columns], fitted_widths)

    if heading:
        yield line(columns.names, columns.numeric())
    for row, text in zip(columns.rows, texts, strict=True):
        yield line(text, [_is_number(value) for value in row])


def bold(text: str) -> str:
    """Bold on a terminal, unless the user wants no colours (https://no-color.org)."""
    return text if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else f"\x1b[1m{text}\x1b[0m"


def _in_seconds(text: str) -> str:
    """Return the text, or a time without parts of a second: cut in the middle, it would say nothing."""
    return f"{text[:19]}Z" if _TIME.fullmatch(text) else text


def _is_figure(text: str) -> bool:
    """Return whether a cell is short and begins with a digit, or is empty."""
    return len(text) <= FIGURE_CHARS and (text in ("", NULL) or text.lstrip(f"{ABOUT}+-$")[:1].isdigit())


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value[:1] == ABOUT and value[1:].isdigit()
    return isinstance(value, int | float) and not isinstance(value, bool)


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
