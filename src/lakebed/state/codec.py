"""Table transactions as JSON, as docs/format.md describes it.

A document of an unknown type is an error and never skipped: a reader that misses one change has another table. Long
lists of references are in sidecars (:mod:`lakebed.state.reference_lists`): the encoder returns their bytes beside the
document, for the caller to store; the decoder takes them. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from lakebed.model.documents import reading
from lakebed.state import fields
from lakebed.state.reference_lists import ReferenceCounts, Sidecars, count_references
from lakebed.state.transactions import StoredTransaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.state.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Encoded:
    """A transaction as it is written: its JSON, and the sidecars that it claims."""

    document: bytes
    sidecars: Sidecars


@dataclass(frozen=True, slots=True)
class Outline:
    """A transaction without what is in sidecars, and how many references it adds and drops, those included."""

    type: str
    transaction: Transaction
    added: ReferenceCounts
    dropped: ReferenceCounts


def encode_transaction(transaction: Transaction) -> Encoded:
    """The JSON of a transaction, and what is too long for it.

    Raises UsageError for a value of a type or range that the format does not have.
    """
    sidecars: Sidecars = {}
    document = transaction.document(sidecars)
    return Encoded(fields.encode(document), sidecars)


def decode_transaction(document: bytes, sidecars: Mapping[str, bytes] = MappingProxyType({})) -> Transaction:
    """The transaction of its JSON; ``sidecars`` are those of its entry, by digest.

    Raises UnsupportedFormatError for an unknown type, DamagedError for a bad one, or a sidecar that is not as claimed.
    """
    with reading("not a transaction of a table"):
        return fields.decode(document, _DECODER, "a transaction").transaction(sidecars)


def outline(document: bytes) -> Outline:
    """What the JSON of a transaction says without its sidecars. Raises as :func:`decode_transaction` does."""
    with reading("not a transaction of a table"):
        stored = fields.decode(document, _DECODER, "a transaction")
        added, dropped = getattr(stored, "references", []), getattr(stored, "drop", [])
        name = str(stored.__struct_config__.tag)
        return Outline(name, stored.transaction(None), count_references(added), count_references(dropped))


_DECODER: msgspec.json.Decoder[StoredTransaction] = msgspec.json.Decoder(StoredTransaction)
