"""Calls in children that are forked from a process which has used the engine, or an object store: each child prints
what became of its call.

    python forked_calls.py FOLDER USED [URL OPTIONS]

USED is what the parent does first: nothing, "scan", "where" (which checks a predicate and reads no row), "sql", or
"store" (which opens an instance at URL). A child without an answer is killed by its alarm.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.engine.predicate import check_where

ALARM_S = 120


def calls(table: Any, lake: Any) -> dict[str, Callable[[], Any]]:
    """Every way to read, to change and to open."""
    sent = pickle.dumps(table)
    return {
        "get": lambda: table.get(5),
        "get_many": lambda: table.get_many([1, 2]),
        "count": lambda: table.count(exact=True),
        "scan": lambda: table.scan().read_all(),
        "where": lambda: table.scan(where="v > 5").read_all(),
        "sample": lambda: table.sample(3),
        "sql": lambda: lake.sql("SELECT count(*) FROM t").read_all(),
        "delete": lambda: table.delete(where="v = 7"),
        "changes": lambda: table.changes(0, where="v > 5").read_all(),
        "write": lambda: table.write(pa.table({"k": [1], "v": [2]})),
        "generated": lambda: lake.table("g").write(pa.table({"v": [2]})),
        "custom": lambda: lake.table("c").get(1),
        "open": lambda: lakebed.open(lake.storage.url).table("t").get(5),
        "unpickle": lambda: pickle.loads(sent).get(5),
    }


def made(folder: Path) -> Any:
    lake = lakebed.create(str(folder))
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, values={"v": "int64"}), merge=lakebed.Latest())
    for _ in range(4):
        table.write(pa.table({"k": range(50_000), "v": range(50_000)}))
    generated = lakebed.Schema({"g": lakebed.Generated("int64", "v + 1")}, values={"v": "int64"})
    lake.create_table("g", generated)
    merged = lakebed.Custom(sql="SELECT k, max(v) AS v FROM rows GROUP BY k")
    custom = lake.create_table("c", lakebed.Schema({"k": "int64"}, values={"v": "int64"}), merge=merged)
    for _ in range(2):
        custom.write(pa.table({"k": [1], "v": [2]}))


def answer(call: Callable[[], Any]) -> str:
    """Return what a forked child says of the call."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(ALARM_S)
        try:
            call()
            said = "done"
        except lakebed.Error as error:
            said = error.code or "no code"
        except Exception as error:  # noqa: BLE001 - said by the parent
            said = repr(error)
        os.write(write_end, said.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said or "no answer"


def main(folder: Path, used: str, url: str = "", options: str = "{}") -> None:
    if used == "make":
        made(folder)
        return
    if used == "store":
        stored = lakebed.open(url, storage_options=json.loads(options))
        table = stored.table("t")
        table.get(5)
        wanted = {"get": lambda: table.get(6), "open": lambda: lakebed.open(url, storage_options=json.loads(options))}
        print(json.dumps({name: answer(call) for name, call in wanted.items()}))
        return
    lake = lakebed.open(str(folder))
    table = lake.table("t")
    if used == "scan":
        table.scan().read_all()
    if used == "where":
        check_where("v > 5", table.schema.arrow)
    if used == "sql":
        lake.sql("SELECT count(*) FROM t").read_all()
    print(json.dumps({name: answer(call) for name, call in calls(table, lake).items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
