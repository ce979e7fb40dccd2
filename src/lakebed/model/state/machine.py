"""The state machines of logs: how proposals are resolved, transactions applied, and both encoded. Pure.

There are two: :data:`TABLE` and :data:`CATALOG`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from lakebed.model.state import catalog, checkpoint_codec, codec, columnar_codecs, fields, transactions
from lakebed.model.state.checkpoint_codec import EncodedState
from lakebed.model.state.codec import Encoded
from lakebed.model.state.columns import ColumnarCodec, Segment
from lakebed.model.state.reference_lists import Sidecars
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import Proposal, Refusal, Transaction

if TYPE_CHECKING:
    from lakebed.model.features import RequiredFeatures


class LogState(Protocol):
    """What the states of all logs have."""

    @property
    def features(self) -> RequiredFeatures:
        """The features that the log requires."""


State = TypeVar("State", bound=LogState)
Proposed = TypeVar("Proposed")
Change = TypeVar("Change")


class Machine(Struct, Generic[State, Proposed, Change], frozen=True):
    """The pure functions of one kind of log. ``empty`` is the state before entry 1.

    A proposal may resolve to several changes, all in one entry.

    ``violations`` are the invariants that a proposal's changes, between two states, break, as text; ``damage`` those
    that a state breaks in what it has changed since its checkpoint.

    A change is encoded as JSON and sidecars, which take lists of more references than the number that is given;
    decoding takes the sidecars of its entry, by digest. A state is encoded in segments of about the bytes that are
    given. ``rebase`` takes a state, an earlier state and the checkpointed
    form of the earlier one, and returns the first on the segments of the checkpoint. ``collecting`` are the types of
    proposals that only collectors make. ``truncated``: whether logs of
    this kind are truncated. The catalog's log is short and never truncated, which saves each reader a request for the
    log start.
    """

    empty: State
    resolve: Callable[[Proposed, State], Change | tuple[Change, ...] | Refusal]
    apply: Callable[[State, Change, int], State]
    violations: Callable[[State, State, Sequence[Change]], Iterator[str]]
    damage: Callable[[State], Iterator[str]]
    encode: Callable[[Change, int], Encoded]
    decode: Callable[[bytes, Mapping[str, bytes]], Change]
    encode_state: Callable[[State, int], EncodedState[State]]
    rebase: Callable[[State, State, State], State]
    restore: Callable[[Mapping[str, Any], Mapping[str, Sequence[Segment[Any, Any]]]], State]
    codecs: Mapping[str, ColumnarCodec[Any, Any]]
    collecting: tuple[type, ...]
    truncated: bool


# A reader needs no invariants: they are imported by the first commit and the first checkpoint of a process.


def _violations_by(before: TableState, after: TableState, changes: Sequence[Transaction]) -> Iterator[str]:
    from lakebed.model.state.invariants import violations_by

    return violations_by(before, after, changes)


def _damage_of(state: TableState) -> Iterator[str]:
    from lakebed.model.state.invariants import since_checkpoint, violations_of

    return violations_of(since_checkpoint(state))


TABLE: Machine[TableState, Proposal, Transaction] = Machine(
    TableState(),
    transactions.resolve,
    transactions.apply,
    _violations_by,
    _damage_of,
    codec.encode_transaction,
    codec.decode_transaction,
    checkpoint_codec.of_table,
    checkpoint_codec.rebase_table,
    checkpoint_codec.to_table,
    columnar_codecs.CODECS,
    (transactions.RetireFiles, transactions.PurgeFiles, transactions.RaiseWatermark),
    truncated=True,
)

CATALOG: Machine[catalog.CatalogState, catalog.CatalogProposal, catalog.CatalogChange] = Machine(
    catalog.CatalogState(),
    catalog.resolve,
    catalog.apply,
    lambda _before, after, _changes: catalog.violations_of(after),
    catalog.violations_of,
    lambda change, _inline_max: Encoded(fields.encode(change), Sidecars()),
    lambda document, _sidecars: catalog.decode_change(document),
    checkpoint_codec.of_catalog,
    lambda state, _then, _rested: state,
    checkpoint_codec.to_catalog,
    {},
    (catalog.FenceCreations,),
    truncated=False,
)
