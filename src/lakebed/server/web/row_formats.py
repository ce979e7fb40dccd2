"""The formats of rows in answers, by their media types; :mod:`lakebed.files.formats.row_chunks` makes the bytes.

Core types: :class:`RowFormat`. :func:`chosen_format` finds the one that an ``Accept`` header wants. Errors: an
HTTPException with 406.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litestar.exceptions import HTTPException

from lakebed.files.formats.row_chunks import Chunks, arrow_stream, csv_lines, json_array, json_lines, parquet_file


@dataclass(frozen=True, slots=True)
class RowFormat:
    """How rows are sent. ``chunks`` makes the bytes of a schema and its batches."""

    media_type: str
    chunks: Chunks


JSON_LINES = RowFormat("application/x-ndjson", json_lines)
JSON_ARRAY = RowFormat("application/json", json_array)
ARROW = RowFormat("application/vnd.apache.arrow.stream", arrow_stream)
CSV = RowFormat("text/csv", csv_lines)
PARQUET = RowFormat("application/vnd.apache.parquet", parquet_file)

FORMATS = (JSON_LINES, JSON_ARRAY, ARROW, CSV, PARQUET)
_BY_NAME = {one.media_type: one for one in FORMATS} | {"application/jsonl": JSON_LINES}


def chosen_format(accept: str | None) -> RowFormat:
    """Return the format that the header prefers; JSON lines without one, and where it accepts anything.

    Raises HTTPException with status 406 if it accepts none.
    """
    if accept is None or accept == "*/*":
        return JSON_LINES
    ranked = sorted(_accepted(accept), key=lambda one: -one[1])
    for name, quality in ranked:
        if quality > 0 and (found := _matching(name)) is not None:
            return found
    known = ", ".join(one.media_type for one in FORMATS)
    raise HTTPException(detail=f"cannot answer as {accept[:200]}; rows are sent as {known}", status_code=406)


def _accepted(accept: str) -> Iterator[tuple[str, float]]:
    """Return the media types of the header, each with its quality."""
    for part in accept.split(","):
        name, *parameters = (text.strip().lower() for text in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        yield name, quality


def _matching(name: str) -> RowFormat | None:
    if name in ("*/*", "application/*"):
        return JSON_LINES
    return CSV if name == "text/*" else _BY_NAME.get(name)
