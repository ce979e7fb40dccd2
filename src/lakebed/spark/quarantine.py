"""Rejected rows of an import, kept apart: what did not fit, with the reason, for somebody to look at.

Each import has a folder of its own, named by its job, below the location that the user gave. Its tasks put Parquet
files there under names of their own, so nothing is ever overwritten, whoever tries how often. What counts is named in
``_SUCCESS``, put after the commit: a file that it does not name, and a folder without one, belong to an attempt that
did not commit, or to one that died just after it. Files of an import that fails are deleted, if it lives to do so.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code
from lakebed.spark.batch import Place
from lakebed.storage.contract import check_name
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class RejectedRows:
    """What one task put aside: how many rows, and the objects' names."""

    rows: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder of one import, below a location that may hold those of others; ``attempt`` begins its files' names."""

    place: Place
    job: str
    attempt: str

    @property
    def url(self) -> str:
        """The folder's URL."""
        return f"{self.place.url.rstrip('/')}/{self.job}"

    @property
    def _mark(self) -> str:
        return f"{self.job}/_SUCCESS"

    def check(self) -> None:
        """Raise UsageError for a location or a name that cannot be, ExistsError for the folder of another import."""
        check_name(self.job)
        storage = self.place.connect()
        if not storage.shared:
            raise Code.INSTANCE_IN_MEMORY(
                f"a quarantine in memory ({self.place.url}) is not seen by Spark's tasks; use a folder"
            )
        if storage.get(self._mark) is not None:
            raise Code.QUARANTINE_IN_USE(
                f"{self.url} holds rejected rows of another import with the job id {self.job}; name another location",
                name=self.url,
            )

    def finish(self, rejected: Sequence[RejectedRows], facts: Mapping[str, Any]) -> None:
        """Say that the rejected rows count. Raises StorageError if the store does not answer clearly."""
        names = [name for one in rejected for name in one.names]
        self.discard(keep=names)
        if not names:
            return
        files = [name.removeprefix(f"{self.job}/") for name in names]
        document = {**facts, "job": self.job, "rows": sum(one.rows for one in rejected), "files": files}
        storage = self.place.connect()
        data = json.dumps(document, indent=1).encode()
        put_until_clear(
            lambda: storage.create(self._mark, data),
            f"{self.url}/_SUCCESS (the rows are imported, and the rejected ones are there)",
        )

    def discard(self, keep: Collection[str] = ()) -> None:
        """Delete what this attempt put aside, but for what counts: all of one that failed, or what tasks did twice."""
        storage = self.place.connect()
        own = [o.name for o in storage.list(self.job) if o.name.startswith(f"{self.job}/{self.attempt}-")]
        storage.delete([name for name in own if name not in keep])


class Aside:
    """The rejected rows of one task, on their way to its quarantine: a local file for each form that they come in."""

    def __init__(self, quarantine: Quarantine, scratch: Path) -> None:
        self._quarantine = quarantine
        self._scratch = scratch
        self._writers: dict[pa.Schema, tuple[Path, Any]] = {}
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Put rows aside."""
        import pyarrow.parquet as pq

        if rows.schema not in self._writers:
            path = self._scratch / f"rejected-{len(self._writers)}.parquet"
            self._writers[rows.schema] = path, pq.ParquetWriter(path, rows.schema, compression="zstd")
        self._writers[rows.schema][1].write_batch(rows)
        self._rows += rows.num_rows

    def send(self) -> RejectedRows:
        """Send all; say what was sent."""
        storage: Storage = self._quarantine.place.connect()
        names = []
        for path, writer in self._writers.values():
            writer.close()
            names.append(f"{self._quarantine.job}/{self._quarantine.attempt}-{clock.new_id()}.parquet")
            storage.send(names[-1], path)
        return RejectedRows(self._rows, tuple(names))
