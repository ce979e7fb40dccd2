"""Reading what lies beside data files: their summaries.

Those of small files are made when they are needed. A summary can be derived from its file, so losing one costs a read
of the file's keys and nothing else: it is made again, and stored again. One that is there and does not make sense is
damage, and named: to replace it unasked would hide that the store changes bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.files import data_name, summary_name
from lakebed.model.key_summaries import Summary
from lakebed.storage.blocks import KEY, digests_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.model.files import DataFile
    from lakebed.model.schema import Schema
    from lakebed.storage.contract import Storage


def load_summaries(
    storage: Storage, table_id: str, files: Iterable[DataFile], schema: Schema, *, cuts: Sequence[bytes] = ()
) -> dict[str, Summary]:
    """The summaries of data files, by file id; those that are made again are exact at these ascending ``cuts``.

    Raises DamagedError naming a summary, or a file, that is damaged.
    """
    found = {}
    for file in files:
        name = summary_name(table_id, file)
        data = storage.get(name) if file.summarised else None
        if data is None:
            found[file.id] = _made_again(storage, table_id, file, schema, cuts)
            if file.summarised:
                storage.create(name, found[file.id].to_ipc())
        else:
            found[file.id] = Summary.from_ipc(data, name)
    return found


def _made_again(storage: Storage, table_id: str, file: DataFile, schema: Schema, cuts: Sequence[bytes]) -> Summary:
    import pyarrow.parquet as pq

    from lakebed.parquet.ranks import RankNotes
    from lakebed.parquet.row_groups import read_row_groups
    from lakebed.parquet.sizes import decoded_rows
    from lakebed.sorting.merge_inputs import stored_id

    notes = RankNotes(schema.codec, cuts, rows_estimate=file.rows)
    keys = schema.arrow_of(schema.row_key_names)
    with storage.fetch(data_name(table_id, file), digest=file.digest) as path, pa.OSFile(str(path)) as source:
        metadata = pq.read_metadata(source)
        stored = {stored_id(column): column.name for column in metadata.schema.to_arrow_schema()}
        names = [stored[field.id] for field in schema.row_key]
        for batch in map(decoded_rows, read_row_groups(source, file.id, columns=names)):
            # Parquet has no seconds: what it gives back are milliseconds.
            notes.add(pa.Table.from_batches([batch.select(names).rename_columns(keys.names)]).cast(keys))
        sealed = KEY.encode() in (metadata.metadata or {})
        blocks = b"" if sealed or not file.summarised else digests_of(path)
    if notes.rows != file.rows:
        raise Code.STATE_INCONSISTENT(f"file {file.id} has {notes.rows} rows of {file.rows}", file=file.id)
    return replace(notes.summary(), blocks=blocks)
