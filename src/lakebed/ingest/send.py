"""Sending the files of a run: from sorted local Parquet to committed-to-be objects.

The data object goes first, then its summary. Both names are fresh, so a lost attempt overwrites nothing and leaves
orphans only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import StorageError
from lakebed.files import DataFile, NewFile, data_object, summary_name
from lakebed.log.stamps import to_us
from lakebed.storage.contract import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.kernels.layout import SortedFile
    from lakebed.storage.contract import Storage

SUMMARY_PUTS_MAX = 5
"""A summary can be made again from its file, so there is no reason to insist for long."""


def send_run(storage: Storage, table_id: str, run: Iterable[SortedFile], *, job: str) -> tuple[NewFile, ...]:
    """Send every file of one run and say what was sent. The local files are used up. ``job`` also names the run."""
    return tuple(_send(storage, table_id, sorted_file, job) for sorted_file in run)


def _send(storage: Storage, table_id: str, sorted_file: SortedFile, job: str) -> NewFile:
    file_id = clock.new_id()
    stored = storage.send(data_object(table_id, job, file_id), sorted_file.path)
    sorted_file.path.unlink(missing_ok=True)
    file = DataFile(
        id=file_id,
        job=job,
        rows=sorted_file.rows,
        size_bytes=stored.size_bytes,
        min_key=sorted_file.min_key,
        max_key=sorted_file.max_key,
        schema_version=sorted_file.schema_version,
        stamp_us=to_us(stored.stamp),
        digest=stored.digest,
        footer_bytes=stored.footer_bytes,
        footer_digest=stored.footer_digest,
        bounds=sorted_file.bounds,
    )
    if file.summarised:
        _put_summary(storage, summary_name(table_id, file), sorted_file.summary.to_ipc())
    return NewFile(file, sorted_file.summary, job)


def _put_summary(storage: Storage, name: str, data: bytes) -> None:
    # An unclear answer is put again: the name is ours alone and the bytes are the same.
    for _ in range(SUMMARY_PUTS_MAX):
        if storage.create(name, data) is not PutOutcome.UNCLEAR:
            return
    raise StorageError(f"the store does not answer clearly whether {name} was written; try again", name=name)
