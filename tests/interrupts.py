"""Ctrl-C at a chosen moment of some work in this thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import FrameType, ModuleType


def interrupted_at(place: int, work: Callable[[], object], modules: Collection[ModuleType] | None = None) -> bool:
    """Do the work, interrupted at the given one of the places in the code where Python looks for signals: where a
    function begins, and after a call of one in C. Those of some modules count, or all. False if it passes fewer.
    """
    files = None if modules is None else {module.__file__ for module in modules}
    passed: set[tuple[object, ...]] = set()

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "c_return") or (files is not None and frame.f_code.co_filename not in files):
            return
        caller = frame if event == "c_return" else frame.f_back
        passed.add((event, frame.f_code, caller and caller.f_code, caller and caller.f_lasti))
        if len(passed) > place:
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
