"""A service of one instance: maintains its online tables, and answers through doors such as HTTP.

Core types: :class:`Service`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from lakebed.table.instance import Instance


class Service:
    """Maintenance in the background, from :meth:`start` to :meth:`stop`, and the instance that doors read."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End what is under way, and return when nothing runs any more."""
