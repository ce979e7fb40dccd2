"""Attaching: sorted Parquet files become data files byte for byte, checked and copied by tasks, added in one commit.

The copy is the table's own: it goes with the garbage when nothing needs it any more, and whoever owns the original may
do with that what he likes. No row is sorted, shuffled or written anew.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.ingest.attach import check_sorted
from lakebed.ingest.send import commit_files, discard, send_run
from lakebed.ingest.sources import check_unchanged, find_files
from lakebed.log.outcomes import Committed, version_of
from lakebed.model.schema import Schema
from lakebed.spark import wire
from lakebed.spark.batch import Place, Tasks, task_scratch
from lakebed.spark.interrupt import current_stop
from lakebed.state.time_travel import committed_at
from lakebed.state.transactions import ProposeFiles, Source
from lakebed.storage.external import open_external
from lakebed.storage.scratch import writing_to

if TYPE_CHECKING:
    from lakebed.model.files import NewFile
    from lakebed.storage.contract import Storage
    from lakebed.table.table import Table

_COPY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AttachReport:
    """What attaching did. ``repeated``: the job id was committed before, at ``number``, and nothing was added now.

    ``number`` is None if there were no rows (and no job id to remember).
    """

    table: str
    rows: int
    files: int
    size_bytes: int
    version: int | None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class _Target:
    """What is the same for all files that are attached to one table."""

    table_id: str
    schemas: tuple[Schema, ...]
    cuts: tuple[bytes, ...]
    value_bytes_max: int
    memory_limit_bytes: int


def attach(tasks: Tasks, table: Table, place: Place, source: Any, job_id: str | None) -> AttachReport:
    """Add the files of a source as they are; see :meth:`Pipeline.attach`."""
    state = table.state()
    first = committed_at(state, "job_id", job_id)
    if first is not None:
        return AttachReport(table.name, 0, 0, 0, first, repeated=True)
    found = find_files(source, table.storage)
    settings = table.settings_in_force()
    target = _Target(
        table.id,
        tuple(state.schemas),
        state.partitions.boundaries,
        settings.value_bytes_max,
        settings.memory_limit_bytes,
    )
    stop = current_stop()
    work, limit = partial(_attach_one, target, place), target.memory_limit_bytes
    results = tasks.run([asdict(file) for file in found], work, stop, memory_limit_bytes=limit)
    failed = next((result for result in results if isinstance(result, Error)), None)
    sent = [new for result in results if not isinstance(result, Error) for new in wire.decode_new_files(result)]
    if failed is not None:
        discard(table.storage, table.id, sent)
        raise failed
    files = as_run(sent)
    rows, size_bytes = sum(new.file.rows for new in files), sum(new.file.size_bytes for new in files)
    if not files and job_id is None:
        return AttachReport(table.name, 0, 0, 0, None)
    stop.check()
    outcome = commit_files(table, ProposeFiles(files, job_id, state.version))
    version = version_of(outcome, f"table {table.name}, attach")
    if isinstance(outcome, Committed) and outcome.repeated:
        return AttachReport(table.name, 0, 0, 0, version, repeated=True)
    return AttachReport(table.name, rows, len(files), size_bytes, version)


def _attach_one(target: _Target, place: Place, document: Any) -> Any:
    """Check a file, and send a copy of it: the work of one task."""
    file = Source(**document)
    with task_scratch() as scratch:
        storage = place.connect()
        checked = check_sorted(
            _copied(file, scratch, storage),
            target.schemas,
            target.cuts,
            file.url,
            value_bytes_max=target.value_bytes_max,
            memory_limit_bytes=target.memory_limit_bytes,
        )
        # A job of its own: files that overlap are no run.
        sent = send_run(storage, target.table_id, [checked] if checked else [], job=clock.new_id())
    return wire.encode_new_files(sent)


def as_run(files: Sequence[NewFile]) -> tuple[NewFile, ...]:
    """The files in key order, as one run if their ranges at most touch."""
    ordered = sorted(files, key=lambda new: (new.file.min_key, new.file.max_key))
    touching = all(a.file.max_key <= b.file.min_key for a, b in itertools.pairwise(ordered))
    return tuple(replace(new, run=ordered[0].run) if touching else new for new in ordered)


def _copied(file: Source, scratch: Path, home: Storage) -> Path:
    """A local copy, for the original stays its owner's. Raises StorageError if it is another file by now."""
    path = scratch / f"attach-{clock.random_token()}.parquet"
    check_unchanged(file, home)
    files, name = open_external(file.url, home)
    try:
        source = files.open(name)
    except OSError as error:
        raise Code.SOURCE_UNREADABLE(f"cannot read {file.url}: {error}", name=file.url) from error
    with source, writing_to(scratch), path.open("wb") as copy:
        shutil.copyfileobj(source, copy, _COPY_BYTES)
    check_unchanged(file, home)
    return path
