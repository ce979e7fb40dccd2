"""A whole state as it is written and opened: a small document, and parts of columns for what there may be millions of.

Pure: who stores the parts, and under which names, is the business of :mod:`lakebed.log.snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import pyarrow as pa

from lakebed.errors import DamagedError, UsageError
from lakebed.files import CommittedFile, DataFile, Reference
from lakebed.partitions import Leaves
from lakebed.schema import Schema
from lakebed.state.catalog import CatalogState, decode_state, encode_state
from lakebed.state.codec import decode_job, encode_job
from lakebed.state.columns import Columns, Form, Part
from lakebed.state.layers import Layers
from lakebed.state.table import TableState

State = TypeVar("State")
K = TypeVar("K", int, str)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Image(Generic[State]):
    """A state ready to be written. ``state`` is equal to the one it was made of, and rests on these very parts."""

    state: State
    document: dict[str, Any]
    parts: Mapping[str, Sequence[Part[Any, Any]]]


# -- the columns of each kind -----------------------------------------------------------------------------------

_FILE_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("job", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("size_bytes", pa.int64()),
        pa.field("min_key", pa.binary()),
        pa.field("max_key", pa.binary()),
        pa.field("schema_version", pa.int64()),
        pa.field("stamp_us", pa.int64()),
        pa.field("digest", pa.string()),
        pa.field("footer_bytes", pa.int64()),
        pa.field("footer_digest", pa.string()),
        pa.field("sequence_lo", pa.int64()),
        pa.field("sequence_hi", pa.int64()),
        pa.field("added", pa.int64()),
        pa.field("dropped", pa.int64()),
        pa.field("references", pa.int64()),
        pa.field("dead", pa.bool_()),
    ]
)
_OF_DATA_FILE = len(DataFile.__dataclass_fields__)


def _encode_files(rows: Sequence[tuple[str, CommittedFile]]) -> pa.RecordBatch:
    columns = [
        [getattr(c.file if index < _OF_DATA_FILE else c, name) for _, c in rows]
        for index, name in enumerate(_FILE_COLUMNS.names)
    ]
    return pa.RecordBatch.from_pydict(dict(zip(_FILE_COLUMNS.names, columns, strict=True)), _FILE_COLUMNS)


def _decode_file(facts: Sequence[Any]) -> CommittedFile:
    return CommittedFile(DataFile(*facts[:_OF_DATA_FILE]), *facts[_OF_DATA_FILE:])


_REFERENCE_COLUMNS = pa.schema(
    [
        pa.field("leaf", pa.int64()),
        pa.field("file", pa.list_(pa.string())),
        pa.field("rows", pa.list_(pa.int64())),
        pa.field("exact", pa.list_(pa.bool_())),
        pa.field("run", pa.list_(pa.string())),
    ]
)


def _encode_references(rows: Sequence[tuple[int, tuple[Reference, ...]]]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {"leaf": [leaf for leaf, _ in rows]}
    for name in _REFERENCE_COLUMNS.names[1:]:
        columns[name] = [[getattr(reference, name) for reference in held] for _, held in rows]
    return pa.RecordBatch.from_pydict(columns, _REFERENCE_COLUMNS)


def _decode_references(facts: Sequence[Any]) -> tuple[Reference, ...]:
    leaf, files, rows, exact, runs = facts
    return tuple(map(Reference, files, [leaf] * len(files), rows, exact, runs))


_REQUEST_COLUMNS = pa.schema([pa.field("request", pa.string()), pa.field("number", pa.int64())])


def _encode_requests(rows: Sequence[tuple[str, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([k for k, _ in rows], pa.string()), pa.array([n for _, n in rows], pa.int64())],
        schema=_REQUEST_COLUMNS,
    )


FILES: Form[str, CommittedFile] = Form(_FILE_COLUMNS, _encode_files, _decode_file)
REFERENCES: Form[int, tuple[Reference, ...]] = Form(_REFERENCE_COLUMNS, _encode_references, _decode_references)
REQUESTS: Form[str, int] = Form(_REQUEST_COLUMNS, _encode_requests, lambda facts: facts[1])

FORMS: Mapping[str, Form[Any, Any]] = {"files": FILES, "references": REFERENCES, "requests": REQUESTS}


# -- states -----------------------------------------------------------------------------------------------------


def of_table(state: TableState) -> Image[TableState]:
    """The image of a table's state. Parts that no change since the last image touched are the same objects."""
    files, references = _columns(FILES, state.files), _columns(REFERENCES, state.references)
    requests = _columns(REQUESTS, state.requests)
    rested = replace(state, files=Layers(files), references=Layers(references), requests=Layers(requests))
    leaves = state.leaves
    document = {
        "number": state.number,
        "table": state.table,
        "schemas": [schema.to_json() for schema in state.schemas],
        "settings": dict(state.settings),
        "boundaries": [b.hex() for b in leaves.boundaries],
        "leaves": list(leaves.ids),
        "next_leaf": leaves.next_id,
        "parents": sorted([child, parent] for child, parent in leaves.parents.items()),
        "jobs": [encode_job(job) for _, job in sorted(state.jobs.items())],
        "next_sequence": state.next_sequence,
        "tags": dict(sorted(state.tags.items())),
        "retained_from": state.retained_from,
        "dropped": state.dropped,
    }
    parts: dict[str, Sequence[Part[Any, Any]]] = {
        "files": files.parts,
        "references": references.parts,
        "requests": requests.parts,
    }
    return Image(rested, document, parts)


def _columns(form: Form[K, V], layers: Layers[K, V]) -> Columns[K, V]:
    base, changes = layers.base, layers.changes
    if not isinstance(base, Columns):
        changes = {**base, **changes}
        base = Columns(form)
    return base.rewritten(changes) if changes else base


def to_table(document: Mapping[str, Any], parts: Mapping[str, Sequence[Part[Any, Any]]]) -> TableState:
    """The table's state of an image. Raises DamagedError if it is none."""
    try:
        return TableState(
            number=document["number"],
            table=document["table"],
            schemas=tuple(Schema.from_json(schema) for schema in document["schemas"]),
            settings=document["settings"],
            leaves=Leaves.of(
                tuple(bytes.fromhex(b) for b in document["boundaries"]),
                tuple(document["leaves"]),
                document["next_leaf"],
                {child: parent for child, parent in document["parents"]},  # noqa: C416 - pairs arrive as lists
            ),
            files=Layers(Columns(FILES, parts.get("files", ()))),
            references=Layers(Columns(REFERENCES, parts.get("references", ()))),
            jobs={job.id: job for job in map(decode_job, document["jobs"])},
            requests=Layers(Columns(REQUESTS, parts.get("requests", ()))),
            next_sequence=document["next_sequence"],
            tags=document["tags"],
            retained_from=document["retained_from"],
            dropped=document["dropped"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise DamagedError(f"not the state of a table ({error!r})") from error


def of_catalog(state: CatalogState) -> Image[CatalogState]:
    """The image of a catalog: few tables, so a document alone."""
    return Image(state, encode_state(state), {})


def to_catalog(document: Mapping[str, Any], parts: Mapping[str, Sequence[Part[Any, Any]]]) -> CatalogState:
    """The catalog of an image. Raises DamagedError if it is none."""
    if parts:
        raise DamagedError("not the state of a catalog: it has parts")
    return decode_state(document)
