"""Table transactions as JSON, as docs/format.md describes it.

A document of an unknown type is an error and is never skipped: a reader that skipped a change would have a wrong state.
Long lists of references are in sidecars (:mod:`lakebed.model.state.reference_lists`): the encoder returns their bytes
beside the document, for the caller to store; the decoder takes them. Pure.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from lakebed.model.documents import reading
from lakebed.model.state import fields
from lakebed.model.state.reference_lists import INLINE_MAX, ReferenceCounts, Sidecars, count_references
from lakebed.model.state.table_state import sql_features
from lakebed.model.state.transactions import (
    AlterSchema,
    ChangeFilter,
    CreateTable,
    RequireFeatures,
    SetMerge,
    StoredTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.model.state.transactions import Transaction


class Encoded(Struct, frozen=True):
    """A transaction as it is written: its JSON, the sidecars to which it refers, and the features that it needs."""

    document: bytes
    sidecars: Sidecars
    features: tuple[str, ...] = ()


class Outline(Struct, frozen=True):
    """A transaction without the contents of its sidecars, and the numbers of references added and dropped."""

    type: str
    transaction: Transaction
    added: ReferenceCounts
    dropped: ReferenceCounts


def encode_transaction(transaction: Transaction, inline_max: int = INLINE_MAX) -> Encoded:
    """Encode a transaction as JSON; lists of more than ``inline_max`` references become sidecars.

    Raises UsageError for a value whose type or range the format does not have.
    """
    sidecars = Sidecars(inline_max)
    document = transaction.document(sidecars)
    return Encoded(fields.encode(document), sidecars, _features(transaction))


def _features(transaction: Transaction) -> tuple[str, ...]:
    match transaction:
        case CreateTable():
            return sql_features((transaction.schema,), transaction.merge, view=transaction.view)
        case AlterSchema():
            return sql_features((transaction.schema,), transaction.merge)
        case SetMerge():
            return sql_features((), transaction.mode)
        case ChangeFilter():
            return sql_features((), row_filter=transaction.filter)
        case RequireFeatures():
            return transaction.of_readers
        case _:
            return ()


def decode_transaction(document: bytes, sidecars: Mapping[str, bytes] = MappingProxyType({})) -> Transaction:
    """Decode a transaction from JSON; ``sidecars`` are those of its entry, by digest.

    Raises UnsupportedFormatError for an unknown type, DamagedError for a malformed one or for a sidecar that does not
    match its reference.
    """
    with reading("not a transaction of a table"):
        return fields.decode(document, _DECODER, "a transaction").transaction(sidecars)


def outline(document: bytes) -> Outline:
    """Decode a transaction without reading its sidecars. Raises as :func:`decode_transaction` does."""
    with reading("not a transaction of a table"):
        stored = fields.decode(document, _DECODER, "a transaction")
        added, dropped = getattr(stored, "references", []), getattr(stored, "drop", [])
        name = str(stored.__struct_config__.tag)
        return Outline(name, stored.transaction(None), count_references(added), count_references(dropped))


_DECODER: msgspec.json.Decoder[StoredTransaction] = msgspec.json.Decoder(StoredTransaction)
