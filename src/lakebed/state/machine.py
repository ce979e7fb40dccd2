"""What a log must know about the state it carries: how offers resolve, transactions apply, and how both are written.

Two exist: a table's and the catalog's. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakebed.state import apply as table_apply
from lakebed.state import catalog, codec, image
from lakebed.state import resolve as table_resolve
from lakebed.state.columns import Form, Part
from lakebed.state.image import Image
from lakebed.state.table import TableState
from lakebed.state.transactions import Offer, Rejected, Repeated, TooOld, Transaction

State = TypeVar("State")
Offered = TypeVar("Offered")
Change = TypeVar("Change")


@dataclass(frozen=True, slots=True)
class Machine(Generic[State, Offered, Change]):
    """The pure functions of one kind of log. ``empty`` is the state before entry 1."""

    empty: State
    resolve: Callable[[Offered, State], Change | Rejected | Repeated | TooOld]
    apply: Callable[[State, Change, int], State]
    encode: Callable[[Change], dict[str, Any]]
    decode: Callable[[Mapping[str, Any]], Change]
    image: Callable[[State], Image[State]]
    restore: Callable[[Mapping[str, Any], Mapping[str, Sequence[Part[Any, Any]]]], State]
    forms: Mapping[str, Form[Any, Any]]


TABLE: Machine[TableState, Offer, Transaction] = Machine(
    TableState(),
    table_resolve.resolve,
    table_apply.apply,
    codec.encode_transaction,
    codec.decode_transaction,
    image.of_table,
    image.to_table,
    image.FORMS,
)

CATALOG: Machine[catalog.CatalogState, catalog.CatalogChange, catalog.CatalogChange] = Machine(
    catalog.CatalogState(),
    catalog.resolve,
    catalog.apply,
    catalog.encode_change,
    catalog.decode_change,
    image.of_catalog,
    image.to_catalog,
    {},
)
