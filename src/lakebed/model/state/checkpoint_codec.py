"""Encodes a whole state for storage: a small document, and segments of columns for parts with up to millions of rows.

Pure: :mod:`lakebed.log.checkpoint` stores the segments. Errors: DamagedError for a document that is not a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from rpds import HashTrieMap

from lakebed.errors import Code
from lakebed.model.documents import reading
from lakebed.model.features import READERS, require_features
from lakebed.model.merge_modes import mode_of
from lakebed.model.partitions import Partitions
from lakebed.model.row_filters import filter_of, stored_filter
from lakebed.model.schema import Schema
from lakebed.model.state.catalog import CatalogState, decode_state, encode_state
from lakebed.model.state.columnar_codecs import CODECS
from lakebed.model.state.columns import SEGMENT_BYTES, ColumnarCodec, Columns, Segment
from lakebed.model.state.fields import (
    FeatureName,
    Hex,
    Id,
    Positive,
    Settings,
    Whole,
    checked,
    decode_bounds,
    encode_bounds,
)
from lakebed.model.state.partition_files import PartitionFiles
from lakebed.model.state.persistent_table import PersistentTable
from lakebed.model.state.table_state import Fence, IngestRequest, TableIndex, TableState, ViewSource, sql_features
from lakebed.model.state.transactions import JobDocument
from lakebed.model.state.transactions.required_features import features_of_readers

State = TypeVar("State")
K = TypeVar("K", int, str)
V = TypeVar("V")


class EncodedState(Struct, Generic[State], frozen=True):
    """An encoded state. ``state`` equals the state that was encoded, and refers to these segments. ``features`` are
    those that a reader of the document must know.
    """

    state: State
    document: dict[str, Any]
    segments: Mapping[str, Sequence[Segment[Any, Any]]]
    features: tuple[str, ...] = ()


class TableDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table's state as it is stored, without the parts that are in segments.

    :mod:`lakebed.model.schema` checks the schemas.
    """

    version: Whole
    table: str
    schemas: list[dict[str, Any]]
    settings: Settings
    boundaries: list[Hex]
    partitions: tuple[Positive, ...]
    next_partition: Positive
    parents: list[tuple[Positive, Positive]]
    jobs: list[JobDocument]
    rejected: tuple[IngestRequest, ...]
    next_sequence: Positive
    tags: dict[str, Positive]
    fences: list[tuple[Hex, Hex | None, Positive]]
    earliest_retained_version: Whole
    request_watermark: Whole
    orphan_cutoff_us: Whole
    dropped: bool
    merge: dict[str, Any] | None = None
    merge_version: Whole = 0
    filter: dict[str, Any] | None = None
    filter_version: Whole = 0
    age_off_cut_us: Whole = 0
    view: ViewSource | None = None
    indexes: tuple[TableIndex, ...] = ()
    rewritten_version: Whole = 0
    restored_version: Whole = 0
    features: dict[FeatureName, str] = {}


_ALIKE = (
    "version", "table", "rejected", "next_sequence", "earliest_retained_version", "request_watermark",
    "orphan_cutoff_us", "dropped", "merge_version", "filter_version", "age_off_cut_us", "view", "indexes",
    "rewritten_version", "restored_version", "features",
)  # fmt: skip
"""Fields that have the same values in a state and in its document."""

_NamedByText = tuple[Id, str, Whole, Positive, str, str]
_NamedByNumber = tuple[Id, str, Whole, Positive, Whole, Whole]
"""A segment in an object: its name, digest, bytes, rows, first and last key."""


class _SegmentsDocument(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Segments by kind; a string is an inline segment in base64."""

    files: list[_NamedByText | str] = []
    references: list[_NamedByNumber | str] = []
    requests: list[_NamedByText | str] = []
    open_requests: list[_NamedByText | str] = []


def stored_segments(document: Any) -> dict[str, list[Any]]:
    """Return the segments that a manifest names, by kind. Raises ValidationError if it is malformed."""
    segments: dict[str, list[Any]] = msgspec.structs.asdict(msgspec.convert(document, _SegmentsDocument))
    return {kind: listed for kind, listed in segments.items() if kind in document}


def of_table(state: TableState, segment_bytes: int = SEGMENT_BYTES) -> EncodedState[TableState]:
    """Encode a table's state, changes in segments of about ``segment_bytes``. Segments without changes since the last
    checkpoint are shared with it.
    """
    columns = {kind: _as_columns(codec, getattr(state, kind), segment_bytes) for kind, codec in CODECS.items()}
    rebased = replace(
        state,
        files=PersistentTable(columns["files"]),
        references=state.references.rebased(columns["references"]),
        requests=PersistentTable(columns["requests"]),
        open_requests=PersistentTable(columns["open_requests"]),
    )
    partitions = state.partitions
    document = TableDocument(
        **{name: getattr(state, name) for name in _ALIKE},
        schemas=[schema.to_json() for schema in state.schemas],
        settings=dict(state.settings),
        boundaries=[boundary.hex() for boundary in partitions.boundaries],
        partitions=partitions.ids,
        next_partition=partitions.next_id,
        parents=[(child, parent) for child, parents in sorted(partitions.parents.items()) for parent in parents],
        jobs=[JobDocument.of(job) for _, job in sorted(state.jobs.items())],
        tags=dict(sorted(state.tags.items())),
        fences=[(*encode_bounds(fence.keys), fence.version) for fence in state.fences],
        merge=state.merge.document(),
        filter=stored_filter(state.row_filter),
    )
    segments = {kind: held.segments for kind, held in columns.items()}
    sql = sql_features(state.schemas, state.merge, state.row_filter, state.view)
    features = tuple(dict.fromkeys([*sql, *features_of_readers(state.features)]))
    return EncodedState(rebased, checked(document), segments, features)


def rebase_table(state: TableState, then: TableState, rebased: TableState) -> TableState:
    """Rebase a state onto ``rebased``, the checkpointed form of the earlier state ``then``.

    Reads no segment. The time is linear in the changes since the checkpoint of ``then``.
    """
    kinds = {kind: (getattr(state, kind), getattr(rebased, kind), getattr(then, kind)) for kind in CODECS}
    return replace(state, **{kind: now.rebased_onto(base, before) for kind, (now, base, before) in kinds.items()})


def _as_columns(
    codec: ColumnarCodec[K, V], table: PersistentTable[K, V] | PartitionFiles, segment_bytes: int
) -> Columns[K, V]:
    base: Any = table.base
    changes: Any = table.changes
    columns: Columns[K, V] = base if isinstance(base, Columns) else Columns(codec)
    if columns is not base:
        changes = {**base, **changes}
    return columns.rewritten(changes, segment_bytes) if changes else columns


def to_table(document: Mapping[str, Any], segments: Mapping[str, Sequence[Segment[Any, Any]]]) -> TableState:
    """Decode a table's state. Raises DamagedError if it is malformed."""
    with reading("not the state of a table"):
        stored = msgspec.convert(document, TableDocument)
        require_features(stored.features, READERS, f"table {stored.table}")
        columns = {kind: Columns(codec, segments.get(kind, ())) for kind, codec in CODECS.items()}
        return TableState(
            **{name: getattr(stored, name) for name in _ALIKE},
            schemas=tuple(map(Schema.from_json, stored.schemas)),
            settings=stored.settings,
            partitions=Partitions.of(
                tuple(map(bytes.fromhex, stored.boundaries)),
                stored.partitions,
                stored.next_partition,
                _parents(stored.parents),
            ),
            files=PersistentTable(columns["files"]),
            references=PartitionFiles(columns["references"]),
            jobs=HashTrieMap((job.id, job.value()) for job in stored.jobs),
            requests=PersistentTable(columns["requests"]),
            open_requests=PersistentTable(columns["open_requests"]),
            tags=stored.tags,
            fences=tuple(Fence(decode_bounds((low, high)), version) for low, high, version in stored.fences),
            merge=mode_of(stored.merge),
            row_filter=filter_of(stored.filter),
        )


def _parents(pairs: Sequence[Any]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for child, parent in pairs:
        found[child] = (*found.get(child, ()), parent)
    return found


def of_catalog(state: CatalogState, _segment_bytes: int) -> EncodedState[CatalogState]:
    """Encode a catalog: it has few tables, so it needs no segments."""
    return EncodedState(state, encode_state(state), {}, features_of_readers(state.features))


def to_catalog(document: Mapping[str, Any], segments: Mapping[str, Sequence[Segment[Any, Any]]]) -> CatalogState:
    """Decode a catalog. Raises DamagedError if it is malformed."""
    if segments:
        raise Code.CHECKPOINT_DAMAGED("not the state of a catalog: it has segments")
    return decode_state(document)
