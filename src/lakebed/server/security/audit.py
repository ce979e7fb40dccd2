"""The audit log: a line of JSON for each request of a service, with principal, request and outcome.

Core type: :class:`AuditLog`. Lines go to a file, which is rotated when it has :data:`FILE_BYTES`, or to stderr. A line
has the request, including statements, but never a token, a cookie, a header or a row.

Rule: a line that cannot be written, for example on a full disk, is lost and reported on stderr; requests continue.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from logging.handlers import RotatingFileHandler
from typing import Any

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.documents import dump
from lakebed.server.security.stored import PREFIX

FILE_BYTES = 64 * 1024 * 1024
FILES_KEPT = 10
"""Older files end in .1 to .10."""

STATEMENT_CHARACTERS = 4096

_SECRETS = re.compile(rf"({PREFIX}|X-Amz-Signature=)[0-9a-f]{{8,}}")
"""A token that a client put where none belongs, such as into a path; the signature of a presigned URL."""


class AuditLog:
    """Writes the lines. Safe to use from many threads."""

    def __init__(self, place: str, *, file_bytes: int = FILE_BYTES, files_kept: int = FILES_KEPT) -> None:
        """``place`` is a file, or ``-`` for stderr. Raises UsageError if it cannot be opened."""
        self._handler: logging.Handler
        if place == "-":
            self._handler = logging.StreamHandler(sys.stderr)
            return
        try:
            self._handler = _PrivateFiles(place, maxBytes=file_bytes, backupCount=files_kept, encoding="utf-8")
        except OSError as error:
            raise Code.ARGUMENT_INVALID(
                f"--audit-log {place}: {error.strerror or error}; choose another file"
            ) from error

    def record(  # noqa: PLR0913 - the fields of a line
        self,
        *,
        principal: str | None,
        interface: str,
        method: str,
        path: str,
        status: int | str,
        seconds: float,
        peer: str | None,
        table: str | None = None,
        statement: str | None = None,
        rows: int | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Write a line. ``principal`` is None for an unauthenticated request; ``interface`` is http, flight or s3."""
        line = {
            "time": clock.now().isoformat(timespec="milliseconds"),
            "principal": principal,
            "protocol": interface,
            "method": method,
            "path": path,
            "table": table,
            "statement": None if statement is None else statement[:STATEMENT_CHARACTERS],
            "status": status,
            "rows": rows,
            "bytes": size_bytes,
            "seconds": round(seconds, 6),
            "peer": peer,
        }
        text = dump({name: value for name, value in line.items() if value is not None or name == "principal"})
        # JSON escapes line ends, so that no request can write a line of its own.
        shown = _SECRETS.sub(r"\1***", text.decode())
        self._handler.handle(logging.LogRecord("audit", logging.INFO, "", 0, shown, None, None))

    def close(self) -> None:
        """Close the file."""
        self._handler.close()


class _PrivateFiles(RotatingFileHandler):
    """Files that only their owner may read: statements may contain values."""

    def _open(self) -> Any:
        return open(os.open(self.baseFilename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "a", encoding="utf-8")  # noqa: PTH123
