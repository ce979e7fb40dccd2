"""System calls that fail, or that are watched."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


def set_calls(patch: pytest.MonkeyPatch, module: ModuleType, **functions: Callable[..., Any]) -> None:
    """Replace system calls, such as those of :mod:`os`, by their names, for as long as the patch lasts."""
    for name, function in functions.items():
        patch.setattr(module, name, function)
