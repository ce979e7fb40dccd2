"""Values of a wrong type that earlier versions wrote, and what is read in their place. docs/format.md section 5.1.

The methods of earlier versions took a request key, a base version, a fence or a size as it was given. A version for a
key was then committed, and every checkpoint after it failed. The bytes stay as they are, for digests chain them; what a
reader makes of them is decided here, once, for entries and for checkpoints. Nothing else of a wrong type was ever
written, so all else is damage. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

UNKNOWN_SIZE = 0
"""What a request's file has in place of a size that nobody knew: it was a device or a pipe, and is rejected."""


def healed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of a transaction of a table or catalog with such values as they are meant; the same one if it has
    none.
    """
    match document:
        case {"type": "add_files", "request_key": key, "base_version": base}:
            if type(base) is int and (key is None or type(key) is str):
                return document
            return {**document, "request_key": _request_key(key), "base_version": _number(base)}
        case {"type": "remove_range", "fence": fence} if type(fence) is not bool:
            return {**document, "fence": bool(fence)}
        case {"type": "set_online", "online": online} if type(online) is not bool:
            return {**document, "online": bool(online)}
        case {"type": "submit_requests", "requests": list(requests)}:
            return {**document, "requests": [healed_request(request) for request in requests]}
        case _:
            return document


def healed_request(document: Any) -> Any:
    """The document of a request, the same if all of its files have a size."""
    match document:
        case {"files": list(files)} if any(type(file) is list and file[1:2] == [None] for file in files):
            sized = [[file[0], healed_size(file[1]), *file[2:]] if type(file) is list else file for file in files]
            return {**document, "files": sized}
        case _:
            return document


def healed_size(size: int | None) -> int:
    """The size of a request's file."""
    return UNKNOWN_SIZE if size is None else size


def healed_online(online: Any) -> bool:
    """Whether a table is online, as the catalog's checkpoint has it: what a reader of before took for true is."""
    return bool(online)


def _request_key(key: Any) -> Any:
    """A key that is no text is its JSON: ``7`` is "7", ``true`` is "true", ``["a",1]`` is '["a",1]'."""
    return key if key is None or type(key) is str else json.dumps(key, separators=(",", ":"), ensure_ascii=False)


def _number(base: Any) -> Any:
    """A boolean is 0 or 1; a number with a fraction is the whole number below it."""
    if type(base) is bool:
        return int(base)
    return math.floor(base) if type(base) is float and math.isfinite(base) else base
