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
from lakebed.state.codec import decode_job, decode_range, encode_job, encode_range
from lakebed.state.columns import Columns, Form, Part
from lakebed.state.layers import Layers
from lakebed.state.table import Answer, Fence, TableState
from lakebed.state.transactions import Request, Source

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


_REQUEST_COLUMNS = pa.schema(
    [pa.field("request", pa.string()), pa.field("number", pa.int64()), pa.field("base_number", pa.int64())]
)


def _encode_requests(rows: Sequence[tuple[str, Answer]]) -> pa.RecordBatch:
    columns = {"request": [k for k, _ in rows], "number": [a.number for _, a in rows]}
    return pa.RecordBatch.from_pydict({**columns, "base_number": [a.base_number for _, a in rows]}, _REQUEST_COLUMNS)


_OPEN_REQUEST_COLUMNS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("url", pa.list_(pa.string())),
        pa.field("size_bytes", pa.list_(pa.int64())),
        pa.field("version", pa.list_(pa.string())),
        pa.field("base_number", pa.int64()),
        pa.field("submitted", pa.int64()),
        pa.field("failures", pa.int64()),
    ]
)


def _encode_open_requests(rows: Sequence[tuple[str, Request]]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {"id": [name for name, _ in rows]}
    for name in ("url", "size_bytes", "version"):
        columns[name] = [[getattr(file, name) for file in request.files] for _, request in rows]
    for name in ("base_number", "submitted", "failures"):
        columns[name] = [getattr(request, name) for _, request in rows]
    return pa.RecordBatch.from_pydict(columns, _OPEN_REQUEST_COLUMNS)


def _decode_open_request(facts: Sequence[Any]) -> Request:
    name, urls, sizes, versions, *numbers = facts
    return Request(name, tuple(map(Source, urls, sizes, versions)), *numbers)


FILES: Form[str, CommittedFile] = Form(_FILE_COLUMNS, _encode_files, _decode_file)
REFERENCES: Form[int, tuple[Reference, ...]] = Form(_REFERENCE_COLUMNS, _encode_references, _decode_references)
REQUESTS: Form[str, Answer] = Form(_REQUEST_COLUMNS, _encode_requests, lambda facts: Answer(*facts[1:]))
OPEN_REQUESTS: Form[str, Request] = Form(_OPEN_REQUEST_COLUMNS, _encode_open_requests, _decode_open_request)

FORMS: Mapping[str, Form[Any, Any]] = {
    "files": FILES,
    "references": REFERENCES,
    "requests": REQUESTS,
    "open_requests": OPEN_REQUESTS,
}


# -- states -----------------------------------------------------------------------------------------------------


def of_table(state: TableState) -> Image[TableState]:
    """The image of a table's state. Parts that no change since the last image touched are the same objects."""
    files, references = _columns(FILES, state.files), _columns(REFERENCES, state.references)
    requests, open_requests = _columns(REQUESTS, state.requests), _columns(OPEN_REQUESTS, state.open_requests)
    rested = replace(
        state,
        files=Layers(files),
        references=Layers(references),
        requests=Layers(requests),
        open_requests=Layers(open_requests),
    )
    leaves = state.leaves
    document = {
        "number": state.number,
        "table": state.table,
        "schemas": [schema.to_json() for schema in state.schemas],
        "settings": dict(state.settings),
        "boundaries": [b.hex() for b in leaves.boundaries],
        "leaves": list(leaves.ids),
        "next_leaf": leaves.next_id,
        "parents": [[child, parent] for child, parents in sorted(leaves.parents.items()) for parent in parents],
        "jobs": [encode_job(job) for _, job in sorted(state.jobs.items())],
        "next_sequence": state.next_sequence,
        "tags": dict(sorted(state.tags.items())),
        "fences": [[*encode_range(fence.keys), fence.number] for fence in state.fences],
        "retained_from": state.retained_from,
        "forget_line": state.forget_line,
        "orphan_horizon_us": state.orphan_horizon_us,
        "dropped": state.dropped,
    }
    parts: dict[str, Sequence[Part[Any, Any]]] = {
        "files": files.parts,
        "references": references.parts,
        "requests": requests.parts,
        "open_requests": open_requests.parts,
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
                _parents(document["parents"]),
            ),
            files=Layers(Columns(FILES, parts.get("files", ()))),
            references=Layers(Columns(REFERENCES, parts.get("references", ()))),
            jobs={job.id: job for job in map(decode_job, document["jobs"])},
            requests=Layers(Columns(REQUESTS, parts.get("requests", ()))),
            open_requests=Layers(Columns(OPEN_REQUESTS, parts.get("open_requests", ()))),
            next_sequence=document["next_sequence"],
            tags=document["tags"],
            fences=tuple(Fence(decode_range(*bounds), number) for *bounds, number in document["fences"]),
            retained_from=document["retained_from"],
            forget_line=document["forget_line"],
            orphan_horizon_us=document["orphan_horizon_us"],
            dropped=document["dropped"],
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise DamagedError(f"not the state of a table ({error!r})") from error


def _parents(pairs: Sequence[Any]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for child, parent in pairs:
        found[child] = (*found.get(child, ()), parent)
    return found


def of_catalog(state: CatalogState) -> Image[CatalogState]:
    """The image of a catalog: few tables, so a document alone."""
    return Image(state, encode_state(state), {})


def to_catalog(document: Mapping[str, Any], parts: Mapping[str, Sequence[Part[Any, Any]]]) -> CatalogState:
    """The catalog of an image. Raises DamagedError if it is none."""
    if parts:
        raise DamagedError("not the state of a catalog: it has parts")
    return decode_state(document)
