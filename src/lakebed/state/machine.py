"""What a log must know about the state it carries: how offers resolve, transactions apply, and both are written.

Two exist: a table's and the catalog's. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakebed.state import apply as table_apply
from lakebed.state import catalog, codec
from lakebed.state import resolve as table_resolve
from lakebed.state.table import TableState
from lakebed.state.transactions import Offer, Rejected, Repeated, Transaction

State = TypeVar("State")
Offered = TypeVar("Offered")
Change = TypeVar("Change")


@dataclass(frozen=True, slots=True)
class Machine(Generic[State, Offered, Change]):
    """The pure functions of one kind of log. ``empty`` is the state before entry 1."""

    empty: State
    resolve: Callable[[Offered, State], Change | Rejected | Repeated]
    apply: Callable[[State, Change, int], State]
    encode: Callable[[Change], dict[str, Any]]
    decode: Callable[[Mapping[str, Any]], Change]
    encode_state: Callable[[State], dict[str, Any]]
    decode_state: Callable[[Mapping[str, Any]], State]


TABLE: Machine[TableState, Offer, Transaction] = Machine(
    TableState(),
    table_resolve.resolve,
    table_apply.apply,
    codec.encode_transaction,
    codec.decode_transaction,
    codec.encode_state,
    codec.decode_state,
)

CATALOG: Machine[catalog.CatalogState, catalog.CatalogChange, catalog.CatalogChange] = Machine(
    catalog.CatalogState(),
    catalog.resolve,
    catalog.apply,
    catalog.encode_change,
    catalog.decode_change,
    catalog.encode_state,
    catalog.decode_state,
)
