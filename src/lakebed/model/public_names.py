"""Public names: those of a package that are imported on first use (PEP 562), modules that moved, and old members.

Rules. A module that moved can be imported by its old name for one release; the first import of it warns. Both names are
one module, so its classes are one as well. A member of a class that has gone warns at each use.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str], moved: Collection[str] = frozenset()) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package; ``homes`` has the module of each name.

    The first use of a name that ``moved`` to the package ``lakebed`` warns. Raises AttributeError for any other name.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if name in moved:
            said = f"{package}.{name} is now lakebed.{name}; the old name goes with the next release"
            warnings.warn(said, DeprecationWarning, stacklevel=2)
        found = vars(sys.modules[package])[name] = getattr(import_module(homes[name]), name)
        return found

    return find


class MovedModules:
    """Finds the modules of packages by their old names; ``homes`` has the new name of each package that moved."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes = homes

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002 - of PEP 451
        """Return how the module is imported; None if it did not move."""
        for old, new in self._homes.items() if name.startswith("lakebed.") else ():
            if name == old or name.startswith(f"{old}."):
                return ModuleSpec(name, self, origin=new + name.removeprefix(old))  # type: ignore[arg-type]
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module at its new place. Importing sets its ``__spec__``; :meth:`exec_module` resets it."""
        assert spec.origin is not None
        module = import_module(spec.origin)
        if spec.name not in self._homes:
            said = f"{spec.name} is now {spec.origin}; the old name goes with the next release"
            warnings.warn(said, DeprecationWarning, stacklevel=2)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing more: the module was executed at its new place."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


class OldMember:
    """A member that a class had: reading it warns, and gives the value that is used in its place."""

    def __init__(self, now: Any) -> None:
        self._now = now

    def __set_name__(self, owner: type, name: str) -> None:
        self._was = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        said = f"{self._was} is now {self._now!r}; the old name goes with the next release"
        warnings.warn(said, DeprecationWarning, stacklevel=2)
        return self._now
