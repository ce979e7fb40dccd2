"""Each argument of each public method with a value of a wrong type: no call ends with an error of Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import lakebed
from lakebed import Error, Schema
from lakebed.clock import new_id

WRONG = (None, 7, "zz", [object()], b"\xff")
RIGHT: dict[str, Any] = {
    "data": [{"id": 3, "s": "c"}],
    "depth": 1,
    "files": "none.parquet",
    "key": 1,
    "keys": [1],
    "name": "t",
    "new_name": "u",
    "query": "SELECT * FROM t",
    "request_key": "x",
    "rows": 1,
    "schema": Schema({"id": "int64"}),
    "statement": "SELECT 1",
}
INTERNAL = {
    "commit",
    "encoded",
    "frame",
    "named",
    "opened",
    "plan_where",
    "planned",
    "point",
    "release",
    "register_new",
    "rows",
    "try_commit",
    "unnamed",
}
"""Methods of handles that only modules of the library call, with values that were checked."""


def made() -> dict[str, Any]:
    lake = lakebed.create(f"memory://{new_id()}")
    table = lake.create_table("t", Schema({"id": "int64"}, {}, {"s": "string"}))
    table.write([{"id": 1, "s": "a"}, {"id": 2, "s": "b"}])
    return {"instance": lake, "table": table, "snapshot": table.snapshot()}


def calls_of(cls: type, method: Callable[..., Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Each parameter of a method, and the arguments of a call with each wrong value of it."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    for one in parameters:
        # A version that is yet to come is waited for.
        for wrong in WRONG if one.name != "at_least" else (value for value in WRONG if value != 7):
            args: list[Any] = []
            named: dict[str, Any] = {}
            for other in parameters:
                value = wrong if other is one else RIGHT.get(other.name)
                if other is not one and (other.default is not other.empty or other.kind.name.startswith("VAR_")):
                    continue
                if other.kind in (other.KEYWORD_ONLY, other.VAR_KEYWORD) or len(args) < parameters.index(other):
                    named[other.name] = value
                else:
                    args.append(value)
            yield f"{cls.__name__}.{method.__name__}({one.name}={wrong!r})", args, named


@pytest.mark.parametrize("kind", ["instance", "table", "snapshot"])
def test_no_argument_of_a_wrong_type_is_an_error_of_python(kind: str) -> None:
    cls, handles = type(made()[kind]), made()
    raw = []
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") or name in INTERNAL:
            continue
        for call, args, named in calls_of(cls, method):
            try:
                result = getattr(handles[kind], name)(*args, **named)
                if hasattr(result, "read_all"):
                    result.read_all()
            except Error:
                # What was refused has changed nothing.
                continue
            except Exception as error:  # noqa: BLE001 - what is looked for
                raw.append(f"{call}: {type(error).__name__}: {error}")
            handles = made()
    assert not raw, "\n".join(raw)
