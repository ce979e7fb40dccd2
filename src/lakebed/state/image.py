"""A whole state as it is written and opened: a small document, and parts of columns for what there may be millions of.

Pure: who stores the parts, and under which names, is the business of :mod:`lakebed.log.snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from lakebed.documents import reading
from lakebed.errors import DamagedError
from lakebed.partitions import Leaves
from lakebed.schema import Schema
from lakebed.state import shapes
from lakebed.state.catalog import CatalogState, decode_state, encode_state
from lakebed.state.codec import decode_job, decode_range, decode_request, encode_job, encode_range, encode_request
from lakebed.state.columns import Columns, Form, Part
from lakebed.state.forms import FILES, OPEN_REQUESTS, REFERENCES, REQUESTS
from lakebed.state.healing import healed_request
from lakebed.state.layers import Layers
from lakebed.state.leaf_files import LeafFiles
from lakebed.state.table import Fence, TableState

State = TypeVar("State")
K = TypeVar("K", int, str)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Image(Generic[State]):
    """A state ready to be written. ``state`` is equal to the one it was made of, and rests on these very parts."""

    state: State
    document: dict[str, Any]
    parts: Mapping[str, Sequence[Part[Any, Any]]]


def of_table(state: TableState) -> Image[TableState]:
    """The image of a table's state. Parts that no change since the last image touched are the same objects."""
    files, references = _columns(FILES, state.files), _columns(REFERENCES, state.references)
    requests, open_requests = _columns(REQUESTS, state.requests), _columns(OPEN_REQUESTS, state.open_requests)
    rested = replace(
        state,
        files=Layers(files),
        references=state.references.rested(references),
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
        "rejected": [encode_request(request) for request in state.rejected],
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


def rest_table(state: TableState, then: TableState, rested: TableState) -> TableState:
    """The same state on the parts of an image of ``then``, an earlier one; ``rested`` is the image's state.

    Nothing is read, and no more looked at than changed since the image before.
    """
    return replace(
        state,
        files=state.files.resting_on(rested.files, then.files),
        references=state.references.resting_on(rested.references, then.references),
        requests=state.requests.resting_on(rested.requests, then.requests),
        open_requests=state.open_requests.resting_on(rested.open_requests, then.open_requests),
    )


def _columns(form: Form[K, V], layers: Layers[K, V] | LeafFiles) -> Columns[K, V]:
    base: Any = layers.base
    changes: Any = layers.changes
    columns: Columns[K, V] = base if isinstance(base, Columns) else Columns(form)
    if columns is not base:
        changes = {**base, **changes}
    return columns.rewritten(changes) if changes else columns


def to_table(document: Mapping[str, Any], parts: Mapping[str, Sequence[Part[Any, Any]]]) -> TableState:
    """The table's state of an image. Raises DamagedError if it is none."""
    with reading("not the state of a table"):
        rejected = [healed_request(request) for request in document["rejected"]]
        shapes.check({**document, "rejected": rejected}, shapes.TABLE_STATE, "the state of a table")
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
            references=LeafFiles(Columns(REFERENCES, parts.get("references", ()))),
            jobs={job.id: job for job in map(decode_job, document["jobs"])},
            requests=Layers(Columns(REQUESTS, parts.get("requests", ()))),
            open_requests=Layers(Columns(OPEN_REQUESTS, parts.get("open_requests", ()))),
            rejected=tuple(map(decode_request, rejected)),
            next_sequence=document["next_sequence"],
            tags=document["tags"],
            fences=tuple(Fence(decode_range(*bounds), number) for *bounds, number in document["fences"]),
            retained_from=document["retained_from"],
            forget_line=document["forget_line"],
            orphan_horizon_us=document["orphan_horizon_us"],
            dropped=document["dropped"],
        )


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
