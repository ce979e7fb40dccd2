"""The bodies of requests that hold rows: kept in a temporary file until they are complete, then read batch by batch.

Nothing is written to a table before the last byte is there, so a request that is cut changes nothing. Core type:
:class:`Upload`. Errors: SchemaMismatchError and DamagedError for bytes that are not of the content type; an
HTTPException for a content type that is not known here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import anyio.to_thread
from litestar.exceptions import HTTPException

from lakebed.errors import Code, Error
from lakebed.storage.disk_space import scratch_prefix

if TYPE_CHECKING:
    from litestar import Request

    from lakebed.model.schema import Schema

SUFFIXES = {
    "application/vnd.apache.arrow.stream": ".arrows",
    "application/vnd.apache.parquet": ".parquet",
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "application/json": ".json",
    "text/csv": ".csv",
}
"""The content types of rows, and the names of such files."""

_HELD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """A complete body in a file that is deleted when it is closed."""

    folder: tempfile.TemporaryDirectory[str]
    path: Path

    def close(self) -> None:
        """Delete the file."""
        self.folder.cleanup()

    @contextmanager
    def rows(self, schema: Schema) -> Iterator[Any]:
        """The rows, as Arrow data that a table of this schema can write. Raises SchemaMismatchError, DamagedError."""
        from lakebed.write.input_files import open_files

        try:
            yield open_files(self.path, schema)
        except Error as error:
            message = error.message.replace(str(self.path), "the body")
            if error.code in (Code.SOURCE_DAMAGED, Code.SOURCE_UNSUPPORTED):
                # A reader of a file calls it damaged. A body was never complete.
                raise Code.SOURCE_UNPARSABLE(message) from error
            raise error.restated(message) from error.__cause__


def content_type(request: Request[Any, Any, Any]) -> str:
    """Return the media type of the body. Raises HTTPException with 415 for one that has no rows."""
    name = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if name not in SUFFIXES:
        given = name[:100] or "none"
        raise HTTPException(detail=f"the content type is {given}; send rows as {', '.join(SUFFIXES)}", status_code=415)
    return name


async def receive(request: Request[Any, Any, Any]) -> Upload:
    """Return the body, once all of it is there."""
    name = content_type(request)
    folder = await anyio.to_thread.run_sync(lambda: tempfile.TemporaryDirectory(prefix=scratch_prefix("upload")))
    upload = Upload(folder, Path(folder.name) / f"rows{SUFFIXES[name]}")
    try:
        file = await anyio.to_thread.run_sync(upload.path.open, "wb")
        try:
            await _spool(request, file)
        finally:
            await anyio.to_thread.run_sync(file.close)
    except BaseException:
        upload.close()
        raise
    return upload


async def _spool(request: Request[Any, Any, Any], file: IO[bytes]) -> None:
    held: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        held.append(chunk)
        size += len(chunk)
        if size >= _HELD_BYTES:
            await anyio.to_thread.run_sync(file.writelines, held)
            held, size = [], 0
    await anyio.to_thread.run_sync(file.writelines, held)


def refuse_empty(upload: Upload) -> None:
    """Raise UsageError for a body without a byte: an empty Arrow stream has a schema."""
    if upload.path.stat().st_size == 0:
        raise Code.ARGUMENT_MISSING("the request has no body; send rows")
