"""The key summaries of data files: loads them, derives lost ones, and adds exact ranks where files are cut.

:func:`load_summaries` reads summaries. A lost summary is derived from the keys of its file and stored again. Small
files have no stored summary. A damaged summary is an error: replacing it silently would hide that the store changes
bytes.

:func:`exact_at` adds exact ranks. A split or a removal changes references, and each reference has a row count. A
summary has the exact ranks of the partition boundaries that its writer knew, and bounds for other keys. So where
partitions are cut, the exact ranks of the cut are read from each file, one page for each key; the counts stay exact
from then on. If a file cannot be read, its counts stay estimates and are marked as such: a read of its rows reports the
damage, and a removal may be the repair.

Errors: DamagedError naming a summary or a file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from lakebed.errors import Code, DamagedError, NotFoundError
from lakebed.model.checks import check_flag
from lakebed.model.files import data_name, summary_name
from lakebed.model.key_summaries import Summary
from lakebed.model.state.transactions import ProposeRemoval
from lakebed.model.state.transactions.removals import bounds_of_removal
from lakebed.storage.blocks import KEY, digests_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakebed.model.files import DataFile
    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.reader import Reader
    from lakebed.storage.contract import Storage

Bounds = dict[str, tuple["DataFile", list[bytes]]]
"""Files by their id, each with keys at which its rows are counted."""

FILES_AT_ONCE = 16
"""Files read concurrently on a store, where each page takes a round trip."""


def load_summaries(
    storage: Storage, table_id: str, files: Iterable[DataFile], schema: Schema, *, cuts: Sequence[bytes] = ()
) -> dict[str, Summary]:
    """Return the summaries of data files, by file id; derived ones are exact at these ascending ``cuts``.

    Raises DamagedError naming a summary, or a file, that is damaged.
    """
    found = {}
    for file in files:
        name = summary_name(table_id, file)
        data = storage.get(name) if file.summarised else None
        if data is None:
            found[file.id] = _derived(storage, table_id, file, schema, cuts)
            if file.summarised:
                storage.create(name, found[file.id].to_ipc())
        else:
            found[file.id] = Summary.of(file, data, name)
    return found


def _derived(storage: Storage, table_id: str, file: DataFile, schema: Schema, cuts: Sequence[bytes]) -> Summary:
    import pyarrow.parquet as pq

    from lakebed.files.parquet.ranks import RankNotes
    from lakebed.files.parquet.row_groups import read_row_groups
    from lakebed.files.parquet.sizes import decoded_rows
    from lakebed.model.field_ids import stored_id

    notes = RankNotes(schema.codec, cuts, rows_estimate=file.rows)
    keys = schema.arrow_of(schema.row_key_names)
    with storage.fetch(data_name(table_id, file), digest=file.digest) as path, pa.OSFile(str(path)) as source:
        metadata = pq.read_metadata(source)
        stored = {stored_id(column): column.name for column in metadata.schema.to_arrow_schema()}
        names = [stored[field.id] for field in schema.row_key]
        for batch in map(decoded_rows, read_row_groups(source, file.id, columns=names)):
            # Parquet has no seconds: they are stored as milliseconds.
            notes.add(pa.Table.from_batches([batch.select(names).rename_columns(keys.names)]).cast(keys))
        sealed = KEY.encode() in (metadata.metadata or {})
        blocks = b"" if sealed or not file.summarised else digests_of(path)
    if notes.rows != file.rows:
        raise Code.STATE_INCONSISTENT(f"file {file.id} has {notes.rows} rows of {file.rows}", file=file.id)
    return replace(notes.summary(), blocks=blocks)


def removal(
    state: TableState, reader: Reader, storage: Storage, ranges: Sequence[EncodedRange], *, fence: bool = False
) -> ProposeRemoval:
    """Return the proposal that removes the rows in the ranges, with summaries that are exact where it cuts.

    Raises UsageError for no range, or a fence that is neither True nor False; DamagedError naming a summary.
    """
    check_flag("fence", fence)
    if not ranges:
        raise Code.ARGUMENT_MISSING("a removal needs a range or a prefix; for all rows give KeyRange()")
    bounds = bounds_of_removal(ranges, state)
    files = [file for file, _ in bounds.values()]
    summaries = load_summaries(storage, state.table, files, state.created, cuts=state.partitions.boundaries)
    return ProposeRemoval(tuple(ranges), fence, exact_at(bounds, summaries, reader, state.created))


def exact_at(bounds: Bounds, summaries: Mapping[str, Summary], reader: Reader, schema: Schema) -> dict[str, Summary]:
    """Return the summaries with exact ranks of these keys; unchanged for a file that cannot be read.

    Raises DamagedError naming a file whose summary contradicts it.
    """

    def exact(name: str) -> Summary:
        summary = summaries[name]
        if name not in bounds:
            return summary
        file, keys = bounds[name]
        try:
            ranks = {key: reader.rank(file, schema, key) for key in keys if not summary.rank(key)[1]}
        except (DamagedError, NotFoundError):
            return summary
        try:
            return summary.with_ranks(ranks)
        except DamagedError as error:
            raise Code.DATA_FILE_DAMAGED(f"file {name}: {error.message}", file=name) from error

    if len(summaries) < 2 or reader.is_local:
        return {name: exact(name) for name in summaries}
    with ThreadPoolExecutor(min(FILES_AT_ONCE, len(summaries)), "lakebed-rank") as threads:
        return dict(zip(summaries, threads.map(exact, summaries), strict=True))
