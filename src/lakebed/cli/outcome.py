"""``--report URL``: the outcome of a command as a document on a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lakebed.errors import Code


class Report:
    """``--report URL``: what a command did, as one JSON document at a path or a store's URL.

    A driver that ``spark-submit --deploy-mode cluster`` starts runs on another machine, so its stdout is not seen. The
    document is written twice: before the command does anything, with ``exit_code`` null, and when it has ended. So a
    URL that cannot be written to is refused before anything is done, and the report of an earlier command is never
    taken for that of this one. Each write replaces the object atomically.

    ``options`` are those of the instance at ``home``, used if both URLs are of one kind. Raises UsageError if the URL
    names no file.
    """

    def __init__(self, url: str, home: str, options: Mapping[str, str]) -> None:
        from lakebed.storage import connect
        from lakebed.storage.external import options_for

        absolute = url if "://" in url else str(Path(url).expanduser().absolute())
        folder, _, name = absolute.rpartition("/")
        if not name or url.endswith("/"):
            raise Code.URL_INVALID(f"--report {url} must name a file, such as s3://bucket/reports/monday.json")
        self._name = name
        self._storage = connect(f"{folder}/", options_for(url, home, options))

    def write(self, exit_code: int | None, outcome: Mapping[str, Any]) -> None:
        """Replace the document; ``exit_code`` is null while the command runs. Raises StorageError."""
        from lakebed.cli.row_formats import json_text

        text = json_text({"exit_code": exit_code, **outcome})
        self._storage.replace(self._name, f"{text}\n".encode())
