"""A data file on a store as a Python file, for Arrow's readers, and files as datasets, for engines.

Engines do not read a file on a store by themselves, because they check no digests. Every byte goes through
:meth:`OpenFiles.fetch`, which verifies it. Nor do they read a local file whose path they would interpret.

*Locates the damage in a file by the checksums of its pages, for the message of an error.*

Only called after a failed read. A flipped bit may lie outside of all pages.
"""

from __future__ import annotations

import io
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code, Error, Facts
from lakebed.model.files import DataFile, data_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow.dataset as pads
    from pyarrow.fs import FileSystem

    from lakebed.files.parquet.open_files import OpenFile, OpenFiles
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


class StoredFile(io.RawIOBase):
    """A file on a store, verified as it is read. For one thread at a time, which Arrow guarantees."""

    def __init__(self, opened: OpenFile, files: OpenFiles) -> None:
        self._opened = opened
        self._files = files
        self._at = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._opened.file.size_bytes}[whence]
        return self._at

    def tell(self) -> int:
        """Return the current offset."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raises as :meth:`OpenFiles.open`; engines show the text, which names the file."""
        left = self._opened.file.size_bytes - self._at
        length = left if size < 0 else min(size, left)
        blocks = self._opened.blocks
        border = self._at if blocks is None else min(max(self._at, blocks.end), self._at + length)
        byte_ranges = [(self._at, border - self._at), (border, self._at + length - border)]
        try:
            data = b"".join(
                self._files.fetch(self._opened, [byte_range for byte_range in byte_ranges if byte_range[1] > 0])
            )
        except OSError as error:
            raise self._files.damaged(self._opened.file, str(error)) from error
        self._at += len(data)
        return data


def stored_dataset(opened: OpenFile, files: OpenFiles, nulls: Iterable[pa.Field] = ()) -> pads.FileSystemDataset:
    """Return a file as a PyArrow dataset, with the column names of the file, and columns of nulls besides.

    Arrow also checks the CRCs of pages, which is the only check of a file without block digests.
    """
    return _dataset(arrow_file(opened, files), None, nulls)


def local_dataset(path: Path, nulls: Iterable[pa.Field] = ()) -> pads.FileSystemDataset:
    """Return a local file as a PyArrow dataset, for an engine that would interpret its path; with columns of nulls."""
    from pyarrow.fs import LocalFileSystem

    return _dataset(str(path), LocalFileSystem(), nulls)


def _dataset(
    file: pa.NativeFile | str, filesystem: FileSystem | None, nulls: Iterable[pa.Field]
) -> pads.FileSystemDataset:
    import pyarrow.dataset as pads

    options = pads.ParquetFragmentScanOptions(page_checksum_verification=True)
    kind = pads.ParquetFileFormat(default_fragment_scan_options=options)
    fragment = kind.make_fragment(file, filesystem)
    return pads.FileSystemDataset([fragment], pa.schema([*fragment.physical_schema, *nulls]), kind)


def arrow_file(opened: OpenFile, files: OpenFiles) -> pa.NativeFile:
    """Return a file on a store, for Arrow's readers."""
    return pa.PythonFile(StoredFile(opened, files), mode="r")
