"""Tables of Sleeper: the files that a snapshot of its state store refers to.

The folder is that of the table in Sleeper's data bucket: ``data/partition_*/*.parquet``, and below
``statestore/snapshots`` two Arrow files for each snapshot, ``N-files.arrow`` and ``N-partitions.arrow``, where N is the
number of a transaction.

Rules. Several partitions may refer to a file, and only its rows inside them are read. A file is read whole if its
reference marks it as inside one partition, else filtered by the regions of its partitions, which have a lowest value
(inclusive) and a highest one (exclusive, null: none) for each row key field. Sleeper compares byte arrays as signed
bytes, so files with such keys are refused if they would have to be filtered.

Source: Sleeper's classes StateStoreFilesArrowFormat and StateStorePartitionsArrowFormat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import Code
from lakebed.model import types
from lakebed.upkeep.migration.foreign_table import (
    ForeignTable,
    Keep,
    ParquetPart,
    SourceFolder,
    SourceLocation,
    of_files,
)

_Region = Mapping[str, tuple[Any, Any]]
"""Lowest and highest value of each row key field."""


def open_sleeper(location: SourceLocation) -> ForeignTable:
    """Open the rows of the latest snapshot, or of that of ``location.version``. Raises NotFoundError."""
    folder = SourceFolder(location)
    number = _snapshot(folder, location.number())
    regions = {
        one["id"]: _region(one["region"]) for one in _rows_in(folder, f"statestore/snapshots/{number}-partitions.arrow")
    }
    parts: list[ParquetPart] = []
    rows: int | None = 0
    for file in _rows_in(folder, f"statestore/snapshots/{number}-files.arrow"):
        references = file["partitionReferences"]
        if not references:
            continue
        path = f"data/{file['filename'].rpartition('/data/')[2]}"
        whole = any(one["onlyContainsDataForThisPartition"] for one in references)
        try:
            keep = None if whole else _keep_regions([regions[one["partitionId"]] for one in references], path)
        except KeyError as error:
            raise Code.SOURCE_DAMAGED(f"{folder.url}: {path} is in partition {error}, which is not there") from error
        parts.append(ParquetPart(path, keep=keep))
        for one in references:
            count = one.get("numberOfRows", one.get("numberOfRecords"))
            rows = None if rows is None or one["countApproximate"] else rows + count
    return replace(of_files(folder, parts, location, str(number)), rows=rows)


def _snapshot(folder: SourceFolder, wanted: int | None) -> int:
    names = (path.rpartition("/")[2] for path in folder.list("statestore/snapshots"))
    numbers = {int(found[1]) for name in names if (found := re.fullmatch(r"(\d+)-files\.arrow", name))}
    if wanted is None and numbers:
        return max(numbers)
    if wanted is None or wanted not in numbers:
        raise Code.SOURCE_NOT_FOUND(
            f"{folder.url} has {'no snapshot' if wanted is None else f'no snapshot of transaction {wanted}'} below "
            f"statestore/snapshots; there are {', '.join(map(str, sorted(numbers))) or 'none'}",
            name=folder.url,
        )
    return wanted


def _rows_in(folder: SourceFolder, path: str) -> list[dict[str, Any]]:
    try:
        with pa.ipc.open_stream(folder.read(path)) as stream:
            return list(stream.read_all().to_pylist())
    except pa.ArrowInvalid as error:
        url = f"{folder.url}/{path}"
        raise Code.SOURCE_DAMAGED(f"{url} cannot be read: {error}", name=url) from error


def _region(ranges: Sequence[Mapping[str, Any]]) -> _Region:
    """Return the ranges of a partition, as stored by this version of Sleeper or, as text, by older ones."""
    return {one.get("fieldName") or one["field"]: (_key_value(one["min"]), _key_value(one["max"])) for one in ranges}


def _key_value(stored: Any) -> Any:
    """Return a value of one of several types: the field that is set."""
    if isinstance(stored, Mapping):
        return next((value for value in stored.values() if value is not None), None)
    return stored


def _keep_regions(regions: Sequence[_Region], path: str) -> Keep:
    """Return a filter that keeps the rows of a batch in any of the regions."""
    if any(isinstance(low, bytes) for region in regions for low, _ in region.values()):
        raise Code.SOURCE_UNSUPPORTED(
            f"{path} lies in several partitions, and its key is a byte array, which Sleeper orders as signed bytes; "
            "compact the table there before, so that each file lies in one",
            source=path,
        )

    return partial(_rows_of_regions, regions=regions)


def _rows_of_regions(batch: pa.RecordBatch, _position: int, regions: Sequence[_Region]) -> pa.RecordBatch:
    masks = (reduce(pc.and_, _region_masks(batch, region)) for region in regions)
    return batch.filter(reduce(pc.or_, masks))


def _region_masks(batch: pa.RecordBatch, region: _Region) -> list[pa.Array]:
    masks: list[pa.Array] = []
    for name, (low, high) in region.items():
        column = batch.column(name)
        column = column.cast(types.canonical(column.type))
        # The lowest values are texts in the snapshots of older versions.
        masks.append(pc.greater_equal(column, pa.scalar(low).cast(column.type)))
        if high is not None:
            masks.append(pc.less(column, pa.scalar(high).cast(column.type)))
    return masks
