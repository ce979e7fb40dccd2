"""Ctrl-C at a chosen moment of some work in this thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import FrameType, ModuleType


def interrupted_at(place: int, work: Callable[[], object], modules: Collection[ModuleType] | None = None) -> bool:
    """Do the work, interrupted at the given one of the places where Python looks for signals: where a function begins,
    and after a call of one in C. Those of some modules count, or all. False if the work has fewer.
    """
    files = None if modules is None else {module.__file__ for module in modules}
    left = place

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        nonlocal left
        if event in ("call", "c_return") and (files is None or frame.f_code.co_filename in files):
            left -= 1
            if left < 0:
                # Python itself ends a profile function that raises.
                raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False
