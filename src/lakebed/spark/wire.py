"""Values on their way between the driver and its tasks: JSON documents, with bytes as hex digits.

No pickle: what comes back from a cluster is data, and is read as such. Summaries travel in their stored form. Field
names are those of the values themselves, because both ends are always of one version.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from lakebed.export.plan import Cell
from lakebed.export.run import ExportTask
from lakebed.ingest.plan import Method
from lakebed.maintenance.compaction.merge_jobs import MergeTask
from lakebed.maintenance.ingest_jobs import IngestTarget, IngestTask, JobPart
from lakebed.model import types
from lakebed.model.files import DataFile, NewFile
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import EncodedRange
from lakebed.model.schema import Field, Schema
from lakebed.parquet.layout import Layout
from lakebed.state.transactions import Source

_LAYOUT_NUMBERS = ("file_bytes", "page_rows", "page_bytes", "row_group_rows", "bloom_fpp")
_FILE_BYTES = ("min_key", "max_key", "bounds")


def dump(document: Any) -> bytes:
    """A document as bytes."""
    return json.dumps(document, separators=(",", ":")).encode()


def load(data: bytes | str) -> Any:
    """The document of bytes."""
    # What one process of a job tells another, NaN included.
    return json.loads(data)  # noqa: TID251


def encode_range(keys: EncodedRange) -> list[str | None]:
    """A key range as two texts; the second is null where there is no end."""
    return [keys.min.hex(), None if keys.max is None else keys.max.hex()]


def decode_range(document: Any) -> EncodedRange:
    """The inverse of :func:`encode_range`."""
    low, high = document
    return EncodedRange(bytes.fromhex(low), None if high is None else bytes.fromhex(high))


def encode_file(file: DataFile) -> dict[str, Any]:
    """A data file."""
    facts = {name: getattr(file, name) for name in DataFile.__dataclass_fields__}
    return facts | {name: facts[name].hex() for name in _FILE_BYTES}


def decode_file(document: Any) -> DataFile:
    """The inverse of :func:`encode_file`."""
    return DataFile(**(document | {name: bytes.fromhex(document[name]) for name in _FILE_BYTES}))


def encode_new_files(files: tuple[NewFile, ...]) -> list[Any]:
    """Files that were sent, with their summaries and new fields, which are nullable."""
    return [
        [
            encode_file(new.file),
            base64.b64encode(new.summary.to_ipc()).decode(),
            new.run,
            [[field.id, field.name, types.to_json(field.type)] for field in new.added],
        ]
        for new in files
    ]


def decode_new_files(document: Any) -> tuple[NewFile, ...]:
    """The inverse of :func:`encode_new_files`."""
    return tuple(
        NewFile(
            decode_file(file),
            Summary.from_ipc(base64.b64decode(summary), f"summary of {file['id']}"),
            run,
            tuple(Field(id_, name, types.from_json(kind), nullable=True) for id_, name, kind in added),
        )
        for file, summary, run, added in document
    )


def encode_layout(layout: Layout) -> dict[str, Any]:
    """How files are written."""
    return {"schema": layout.schema.to_json()} | {name: getattr(layout, name) for name in _LAYOUT_NUMBERS}


def decode_layout(document: Any) -> Layout:
    """The inverse of :func:`encode_layout`."""
    return Layout(Schema.from_json(document["schema"]), **{name: document[name] for name in _LAYOUT_NUMBERS})


def encode_task(task: MergeTask) -> dict[str, Any]:
    """A merge task."""
    return {
        "job": task.job,
        "table": task.table_id,
        "slices": [encode_range(keys) for keys in task.slices],
        "inputs": [encode_file(file) for file in task.inputs],
        "layout": encode_layout(task.layout),
        "memory_limit_bytes": task.memory_limit_bytes,
        "rows": task.rows,
    }


def decode_task(document: Any) -> MergeTask:
    """The inverse of :func:`encode_task`."""
    return MergeTask(
        job=document["job"],
        table_id=document["table"],
        slices=tuple(decode_range(keys) for keys in document["slices"]),
        inputs=tuple(decode_file(file) for file in document["inputs"]),
        layout=decode_layout(document["layout"]),
        memory_limit_bytes=document["memory_limit_bytes"],
        rows=document["rows"],
    )


def encode_export_task(task: ExportTask) -> dict[str, Any]:
    """A task of an export; files that several cells share travel once."""
    files = {file.id: file for cell in task.cells for file in cell.files}
    return {
        "export": task.export,
        "index": task.index,
        "table": task.table_id,
        "files": [encode_file(file) for file in files.values()],
        "cells": [
            [
                encode_range(cell.keys),
                [file.id for file in cell.files],
                cell.rows,
                cell.size_bytes,
                cell.exact,
                cell.whole,
            ]
            for cell in task.cells
        ],
        "layout": encode_layout(task.layout),
        "format": task.format,
        "where": task.where,
        "memory_limit_bytes": task.memory_limit_bytes,
    }


def decode_export_task(document: Any) -> ExportTask:
    """The inverse of :func:`encode_export_task`."""
    files = {file.id: file for file in map(decode_file, document["files"])}
    return ExportTask(
        export=document["export"],
        index=document["index"],
        table_id=document["table"],
        cells=tuple(
            Cell(decode_range(keys), tuple(files[name] for name in names), *counts)
            for keys, names, *counts in document["cells"]
        ),
        layout=decode_layout(document["layout"]),
        format=document["format"],
        where=document["where"],
        memory_limit_bytes=document["memory_limit_bytes"],
    )


def encode_ingest_task(task: IngestTask) -> dict[str, Any]:
    """An ingest task, without its target, which many tasks share."""
    parts = [
        [part.file.url, part.file.size_bytes, part.file.version, [encode_range(keys) for keys in part.without]]
        for part in task.parts
    ]
    return {"job": task.job, "method": task.method, "parts": parts}


def decode_ingest_task(document: Any, target: IngestTarget) -> IngestTask:
    """The inverse of :func:`encode_ingest_task`, with the target."""
    parts = tuple(JobPart(Source(*file), tuple(map(decode_range, without))) for *file, without in document["parts"])
    return IngestTask(document["job"], Method(document["method"]), parts, target)
