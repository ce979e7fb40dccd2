"""Handles that are opened ahead of the store's answer, from what the cache on local disk remembers.

Opening an instance, finding a table and looking up a row are a round trip each, because each needs the answer of the
one before. The cache on local disk knows what the answers were for a process before this one. So :func:`lakebed.open`
and :meth:`Instance.table` return handles that have asked nothing yet. Their first use asks whether the guess is right,
and does its work with the guess meanwhile; if it is not right, that work is done again. A first read takes one round
trip: the object of the instance, the end of the catalog's log and that of the table's log are requested side by side.

Rules. Nothing is returned before the store has confirmed the guess by requests that began after the call did. An
instance or a table that is gone is reported by the first use of its handle. A caller that acts on that, such as one
that makes a missing table, begins with :func:`confirmed`. Core types: :class:`Guess`, :class:`GuessedInstance`,
:class:`GuessedTable`. Errors: those of opening the handle.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lakebed.model.checks import check_text
from lakebed.storage import telemetry
from lakebed.table.instance import Instance
from lakebed.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from lakebed.model.state.catalog import CatalogState
    from lakebed.read.snapshot.snapshot import Snapshot

T = TypeVar("T")
R = TypeVar("R")


def remembered_catalog(instance: Instance) -> CatalogState | None:
    """Return the catalog that a process of this machine saw last; None: it is not known. No request."""
    head = instance.catalog_log().tail.remembered()
    return None if head is None else head.state


class Guess(Generic[T]):
    """A handle that is probably the right one, and ``ask``, which returns the right one."""

    def __init__(self, handle: T, ask: Callable[[], T]) -> None:
        self.handle = handle
        self._ask = ask
        self._asking = threading.Lock()
        self._right: T | None = None

    @property
    def is_known(self) -> bool:
        """Whether the right handle was asked for; no request."""
        return self._right is not None

    def right(self) -> T:
        """Return the right handle, which is asked for once. Raises as ``ask``."""
        with self._asking:
            if self._right is None:
                self._right = self._ask()
            return self._right

    def apply(self, act: Callable[[T], R]) -> R:
        """Return what ``act`` returns for the right handle, called for the guess while that is asked for."""
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1, "lakebed-ahead") as thread:
            ahead = thread.submit(telemetry.carry(act), self.handle)
            right = self.right()
        return ahead.result() if right is self.handle else act(right)


class GuessedInstance(Instance):
    """An instance that was here when a process of this machine last opened it. It becomes the right one at first use:
    what :class:`Instance` has is taken from that.
    """

    def __init__(self, guess: Guess[Instance]) -> None:
        self._guess = guess
        self.storage = guess.handle.storage
        self.storage_options = guess.handle.storage_options
        self.address = guess.handle.address

    def __getattr__(self, name: str) -> Any:
        return _become_right(self, self._guess, name)

    def right(self) -> Instance:
        """Return the instance that is there, which is asked for once. Raises as :func:`lakebed.open`."""
        return self._guess.right()

    def table(self, name: str) -> Table:
        """As :meth:`Instance.table`; one that is gone is reported by its first use."""
        check_text("name", name)
        guess, remembered = self._guess, None
        if not guess.is_known and (catalog := remembered_catalog(guess.handle)) is not None:
            remembered = catalog.named(name)
        if remembered is None:
            return super().table(name)
        table = guess.handle.opened(remembered)
        return GuessedTable(Guess(table, lambda: guess.apply(lambda instance: instance.table(name))))

    def close(self) -> None:
        """As :meth:`Instance.close`; an instance that was not used is not asked for."""
        if self._guess.is_known:
            super().close()


class GuessedTable(Table):
    """The table that had the name when a process of this machine last saw the catalog; as :class:`GuessedInstance`."""

    def __init__(self, guess: Guess[Table]) -> None:
        self._guess = guess
        self.name = guess.handle.name
        self.storage = guess.handle.storage
        self._get = self._first_get

    def __getattr__(self, name: str) -> Any:
        return _become_right(self, self._guess, name)

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> Snapshot:
        """As :meth:`Table.snapshot`, with which most reads begin."""
        if self._guess.is_known:
            return super().snapshot(max_staleness, at_least)
        return self._guess.apply(lambda table: table.snapshot(max_staleness, at_least))

    def _first_get(self, *request: Any) -> pa.Table:
        rows = self._guess.apply(lambda table: table.versions.get(*request))
        # The lookups that follow need not come by here.
        vars(self).update(vars(self._guess.right()))
        return rows


def confirmed(instance: Instance) -> Instance:
    """Return the instance, asked for if it was not yet: its method ``table`` then reports one that is gone itself."""
    return instance.right() if isinstance(instance, GuessedInstance) else instance


def _become_right(handle: Any, guess: Guess[Any], name: str) -> Any:
    """Give a handle the attributes of the right one, and return one of them. Raises AttributeError for another name."""
    if name not in vars(guess.handle):
        raise AttributeError(f"{type(handle).__name__!r} object has no attribute {name!r}", name=name, obj=handle)
    vars(handle).update(vars(guess.right()))
    return vars(handle)[name]
