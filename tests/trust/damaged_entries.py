"""Entries, log starts, manifests and segments of checkpoints, damaged in every way, through the readers of the log.

Two kinds of damage. *Changed bytes* keep their old digest: a reader gives what was written, or an error of Lakebed.
*Written so*: a program with a fault wrote other members, and a digest that fits them. No reader can know what was
meant, but it may raise errors of Lakebed alone, never one of Python or of a library.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import AddField, Latest, Schema
from lakebed.errors import DamagedError, Error, UnsupportedFormatError
from lakebed.log import entry as entries
from lakebed.log.backends.backend import decode_log_start, encode_log_start
from lakebed.log.checkpoint import Head
from lakebed.log.log_limits import LogLimits
from lakebed.log.replay import advance
from lakebed.model.files import sidecar_name
from lakebed.model.state.codec import outline
from lakebed.model.state.machine import CATALOG, TABLE
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.splitting.run import split
from tests.documents import rewritten
from tests.trust.results import Slice

SCHEMA = Schema({"k": "string"}, values={"v": "int64", "w": "string"})
ROUNDS = 100
"""Damages of each stored object in a slice, in each way."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object of a log: its bytes, and a function that reads such bytes and returns what they mean."""

    kind: str
    data: bytes
    read: Callable[[bytes], Any]


def _made(folder: str) -> Any:
    """An instance whose logs have transactions of many kinds, some with sidecars."""
    lake = lakebed.create(folder)
    table = lake.create_table("t", SCHEMA, merge=Latest(), split_points=["c", "m"], settings={"split_rows": 1_000})
    table.log.limits = LogLimits(inline_bytes=0, inline_references=1)
    letters = [f"{letter}{number:03}" for letter in "abcxyz" for number in range(300)]
    table.write(pa.table({"k": letters, "v": range(len(letters)), "w": letters}))
    table.write({"k": ["a001", "q"], "v": [1, 2]}, partial=True)
    table.delete(where="v = 7")
    split(table)
    with tempfile.TemporaryDirectory() as scratch:
        compact(
            table,
            prepare(table, "full"),
            lambda tasks: [run_merge_task(task, table.storage, Path(scratch)) for task in tasks],
            cores=1,
        )
    table.tag("first")
    table.alter(AddField("n", "int64"))
    table.remove(prefix="z")
    table.set(history_s=99)
    lake.rename_table("t", "u")
    lake.create_table("other", SCHEMA)
    lake.drop_table("other")
    table = lake.table("u")
    table.log.wait_for_checkpoint()
    table.log.checkpoints.write(table.log.head)
    return lake


def _entries_of(log: Any, machine: Any) -> Iterator[Stored]:
    head = Head(0, "", machine.empty)
    for version in sorted(log.backend.versions()):
        data = log.backend.get(version)
        yield Stored("entry", data, partial(_followed, head, log, machine))
        if machine is TABLE:
            yield Stored("entry", data, partial(_shown, log.identity, version))
        head = advance(head, data, log.identity, machine, log.read_sidecars).head


def _followed(head: Any, log: Any, machine: Any, data: bytes) -> Any:
    """As a follower reads it."""
    after = advance(head, data, log.identity, machine, log.read_sidecars)
    return after.head.digest, after.head.state


def _shown(identity: str, version: int, data: bytes) -> Any:
    """As the history shows it."""
    entry = entries.decode(data, identity, version, None)
    with entries.naming(identity, version):
        return [outline(document) for document in entry.documents]


def _objects_of(log: Any, storage: Any, prefix: str) -> Iterator[Stored]:
    for listed in list(storage.list(f"{prefix}/checkpoints")):
        kind = "segment" if listed.name.endswith(".arrow") else "manifest"
        yield Stored(kind, storage.get(listed.name), partial(_checkpoint, log, storage, listed.name))
    for version in sorted(log.backend.versions()):
        entry = entries.decode(log.backend.get(version), log.identity, version, None)
        for sidecar in entry.sidecars:
            name = sidecar_name(prefix, sidecar.version, sidecar.digest)
            yield Stored("sidecar", storage.get(name), partial(_sidecar, log, storage, name, entry))


def _with(storage: Any, name: str, data: bytes, read: Callable[[], Any]) -> Any:
    before = storage.get(name)
    storage.replace(name, data)
    try:
        return read()
    finally:
        storage.replace(name, before)


def _checkpoint(log: Any, storage: Any, name: str, data: bytes) -> Any:
    def read() -> Any:
        head = log.checkpoints.read_whole()
        return head and (head.version, head.digest, head.state)

    return _with(storage, name, data, read)


def _sidecar(log: Any, storage: Any, name: str, entry: entries.Entry, data: bytes) -> Any:
    return _with(storage, name, data, lambda: log.read_sidecars(entry))


# -- damage -----------------------------------------------------------------------------------------------------


def _bytes_changed(data: bytes, chance: random.Random, _others: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        changed[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(changed)


def _bit_flipped(data: bytes, chance: random.Random, _others: list[bytes]) -> bytes:
    changed = bytearray(data)
    changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(data: bytes, chance: random.Random, _others: list[bytes]) -> bytes:
    return data[: chance.randrange(len(data))]


def _part_lost(data: bytes, chance: random.Random, _others: list[bytes]) -> bytes:
    begin = chance.randrange(len(data))
    return data[:begin] + data[begin + chance.randint(1, 40) :]


def _part_doubled(data: bytes, chance: random.Random, _others: list[bytes]) -> bytes:
    begin = chance.randrange(len(data))
    return data[: begin + chance.randint(1, 40)] + data[begin:]


def _lines_reordered(data: bytes, chance: random.Random, _others: list[bytes]) -> bytes:
    lines = data.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def _another(_data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return chance.choice(others)


def _head_of_another(data: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    return chance.choice(others).partition(b"\n")[0] + b"\n" + data.partition(b"\n")[2]


def _zeros(data: bytes, chance: random.Random, _others: list[bytes]) -> bytes:
    begin = chance.randrange(len(data))
    return data[:begin] + bytes(len(data) - begin)


CHANGED: dict[str, Callable[[bytes, random.Random, list[bytes]], bytes]] = {
    "one to three bytes changed": _bytes_changed,
    "a bit flipped": _bit_flipped,
    "cut short": _cut,
    "a part lost": _part_lost,
    "a part doubled": _part_doubled,
    "lines reordered": _lines_reordered,
    "another object of the logs in its place": _another,
    "the header of another": _head_of_another,
    "zeros to the end": _zeros,
}
VALUES = (None, True, -1, 0, 1, 2**63, 2**70, 1.5, "", "x", [], [[]], {}, {"x": []}, "9" * 40, [None], [1, "x"])


def _written_so(data: bytes, chance: random.Random) -> bytes:
    """Change a member, anywhere in the header or in a line, and make the digest fit."""
    head, _, body = data.partition(b"\n")
    lines = [json.loads(line) for line in body.splitlines()]
    if not lines or chance.random() < 0.3:
        members = [name for name in json.loads(head) if name not in ("format", "features", "digest")]
        return rewritten(data, **{chance.choice(members): chance.choice(VALUES)})
    place = chance.randrange(len(lines))
    lines[place] = _mutated(lines[place], chance)
    text = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    return rewritten(data, text)


def _mutated(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with a part of it replaced, taken away, or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        name = chance.choice(list(value))
        if chance.random() < 0.15:
            return {other: kept for other, kept in value.items() if other != name}
        return {**value, name: _mutated(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        place = chance.randrange(len(value))
        if chance.random() < 0.3:
            return value[:place] + value[place + 1 :] if chance.random() < 0.5 else [*value, value[place]]
        return [*value[:place], _mutated(value[place], chance), *value[place + 1 :]]
    return chance.choice(VALUES)


# -- the slice --------------------------------------------------------------------------------------------------


def stored_of(lake: Any) -> list[Stored]:
    """Return the objects of both logs with their readers."""
    catalog, table = lake.catalog_log(), lake.table("u")
    found = [
        *_entries_of(catalog, CATALOG),
        *_entries_of(table.log, TABLE),
        *_objects_of(catalog, lake.storage, "catalog"),
        *_objects_of(table.log, lake.storage, f"tables/{table.id}"),
    ]
    return [*found, Stored("log start", encode_log_start(7), lambda data: decode_log_start(data, "u"))]


def damaged(seed: int, rounds: int = ROUNDS) -> Slice:
    """Damage each object of the logs of an instance this often in each way."""
    done, chance = Slice(), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        objects = stored_of(_made(f"{folder}/lake"))
        others = sorted({stored.data for stored in objects})
        for stored in objects:
            meant = stored.read(stored.data)
            tries = rounds if stored.kind in ("entry", "log start") else max(1, rounds // 10)
            for kind, change in CHANGED.items():
                for _ in range(tries):
                    _try(done, stored, kind, change(stored.data, chance, others), meant)
            if stored.kind in ("entry", "manifest"):
                for _ in range(tries * 3):
                    _try(done, stored, "written so", _written_so(stored.data, chance), None)
    return done


def _try(done: Slice, stored: Stored, kind: str, data: bytes, meant: Any) -> None:
    if data == stored.data:
        return
    done.units += 1
    done.events[f"damage: {kind}"] += 1
    done.events[f"object: {stored.kind}"] += 1
    try:
        found = stored.read(data)
    except (DamagedError, UnsupportedFormatError):
        done.events["reported"] += 1
    except Error as error:
        done.events["reported"] += 1
        if kind != "written so":
            done.findings.append(f"{kind}, {stored.kind}: {error!r} of {data[:300]!r}")
    except BaseException as error:  # noqa: BLE001 - a foreign error is a finding
        done.findings.append(f"{kind}, {stored.kind}: {type(error).__name__}: {error} of {data[:1_500]!r}")
    else:
        if kind == "written so" or found == meant:
            done.events["read"] += 1
        else:
            done.findings.append(f"{kind}, {stored.kind}: SILENT: {str(found)[:200]} of {data[:300]!r}")
