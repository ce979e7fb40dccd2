"""What a log must know about the state it carries: how offers resolve, transactions apply, and how both are written.

Two exist: a table's and the catalog's. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lakebed.state import apply as table_apply
from lakebed.state import catalog, codec, forms, image
from lakebed.state.codec import Encoded
from lakebed.state.columns import Form, Part
from lakebed.state.image import Image
from lakebed.state.table import TableState
from lakebed.state.transactions import Offer, Rejected, Repeated, TooManyRuns, TooOld, Transaction

State = TypeVar("State")
Offered = TypeVar("Offered")
Change = TypeVar("Change")


@dataclass(frozen=True, slots=True)
class Machine(Generic[State, Offered, Change]):
    """The pure functions of one kind of log. ``empty`` is the state before entry 1. ``trimmed`` says whether logs of
    that kind ever are: the catalog's is short, and to know its floor without asking spares each reader a request.

    A change is encoded as a document and side objects; decoding takes the side objects of its entry, by digest.
    ``rest`` puts a state on the image of an earlier one: it takes both, and the state of the image.
    """

    empty: State
    resolve: Callable[[Offered, State], Change | Rejected | Repeated | TooOld | TooManyRuns]
    apply: Callable[[State, Change, int], State]
    encode: Callable[[Change], Encoded]
    decode: Callable[[Mapping[str, Any], Mapping[str, bytes]], Change]
    image: Callable[[State], Image[State]]
    rest: Callable[[State, State, State], State]
    restore: Callable[[Mapping[str, Any], Mapping[str, Sequence[Part[Any, Any]]]], State]
    forms: Mapping[str, Form[Any, Any]]
    trimmed: bool


def _resolve(offer: Offer, state: TableState) -> Transaction | Rejected | Repeated | TooOld | TooManyRuns:
    # Of writers alone: a process that only reads does not load it.
    from lakebed.state.resolve import resolve

    return resolve(offer, state)


TABLE: Machine[TableState, Offer, Transaction] = Machine(
    TableState(),
    _resolve,
    table_apply.apply,
    codec.encode_transaction,
    codec.decode_transaction,
    image.of_table,
    image.rest_table,
    image.to_table,
    forms.FORMS,
    trimmed=True,
)

CATALOG: Machine[catalog.CatalogState, catalog.CatalogChange, catalog.CatalogChange] = Machine(
    catalog.CatalogState(),
    catalog.resolve,
    catalog.apply,
    lambda change: Encoded(catalog.encode_change(change), {}),
    lambda document, _sides: catalog.decode_change(document),
    image.of_catalog,
    lambda state, _then, _rested: state,
    image.to_catalog,
    {},
    trimmed=False,
)
