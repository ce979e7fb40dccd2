"""Locates the damage in a file by the checksums of its pages, for the message of an error.

Only called after a failed read. A flipped bit may lie outside of all pages.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lakebed.errors import Code, Error, Facts
from lakebed.model.files import DataFile, data_name

if TYPE_CHECKING:
    from pathlib import Path

    from lakebed.storage.contract import Storage


def locate_damage(damage: Error, storage: Storage, table_id: str, file: DataFile) -> Error:
    """Return the error with the first row group and column that cannot be read, if any."""
    from pyarrow import ArrowException

    place: tuple[int, str] | None = None
    # Names in a damaged footer may be invalid UTF-8.
    with suppress(Error, OSError, ArrowException, ValueError), storage.fetch(data_name(table_id, file)) as path:
        place = _first_damaged(path)
    if place is None:
        return damage
    group, column = place
    text = f"{damage.message}. In row group {group} column {column} cannot be read"
    facts: Facts = {**damage.facts, "row_group": group, "column": column}
    return Code.PAGE_DAMAGED(text, **facts)


def _first_damaged(path: Path) -> tuple[int, str] | None:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            for column in file.schema_arrow.names:
                try:
                    file.read_row_group(group, columns=[column], use_threads=False)
                except (OSError, ArrowException, ValueError):
                    return group, column
    return None
