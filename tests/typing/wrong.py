"""A program whose every statement is a mistake that type checkers report: an unneeded ``ignore`` is an error."""

from __future__ import annotations

import lakebed


def wrong(lake: lakebed.Instance) -> None:
    """Call what is not there, with what does not fit."""
    lake.tabel("t")  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    lake["t"].count(3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    lake["t"].get("k", columns=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    lake.create_table("t", {"k": "string"})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    lakebed.create("x", exists_ok=True)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    lake["t"].write([], commit_id=7)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    print(lake["t"].version + "1")  # type: ignore[operator] # pyright: ignore[reportOperatorIssue]
