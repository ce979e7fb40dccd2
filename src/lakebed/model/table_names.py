"""An instance as a container of tables by name, for Python's own operators. Pure.

Core type. :class:`TableNames`, which instances extend, both opened ones and those of a service.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

from lakebed.model.shared_handle import SharedHandle

Table_co = TypeVar("Table_co", covariant=True)


class TableNames(SharedHandle, ABC, Generic[Table_co]):
    """``lake["flights"]``, ``"flights" in lake``, ``for name in lake`` and ``len(lake)``; each reads the names anew."""

    @abstractmethod
    def tables(self) -> list[str]:
        """Names of all tables, sorted."""

    @abstractmethod
    def table(self, name: str) -> Table_co:
        """The table of that name. Raises NotFoundError if there is none."""

    def __getitem__(self, name: str) -> Table_co:
        """As :meth:`table`. Raises NotFoundError, which is no KeyError, if there is none."""
        return self.table(name)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __len__(self) -> int:
        return len(self.tables())

    def __bool__(self) -> bool:
        # An instance without tables is not nothing: `lake or default` must not read the names.
        return True

    def _ipython_key_completions_(self) -> list[str]:
        """What follows ``lake["`` in notebooks."""
        return self.tables()
