"""Handles of which a copy is the handle itself. Pure."""

from __future__ import annotations

from typing import Any, Self


class SharedHandle:
    """Safe to use from many threads, with caches that copies would not share: ``copy`` and ``deepcopy`` return it."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        return self
