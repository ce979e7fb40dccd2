"""The specification kit: ``python -m tests.golden.kit`` writes ``kit.json`` beside the golden instance.

It has what a program that reads the golden instance from docs/format.md alone has to answer: the rows of tables at
versions, in the form of section 13, and for changed copies of the instance whether it has to refuse, and why. The rows
are Lakebed's own answers; tests/golden/test_kit.py compares them with those of other readers, too.
"""

from __future__ import annotations

import base64
import decimal
import hashlib
import json
import math
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.errors import NotRetainedError
from lakebed.read.snapshot.snapshot import Snapshot
from tests.documents import contents
from tests.golden.make import ARCHIVE, FOLDER, extract
from tests.later import FEATURE, append, require, rewritten

KIT = "kit.json"
ROWS_MAX = 30
"""Larger tables have the first rows, their number and a digest."""

VERSIONS_MAX = 4
"""Versions of a table besides the latest, evenly spread."""


def shown(column: pa.Array) -> list[Any]:
    """Return the values of a column in the form of section 13."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return shown(column.storage)
    if pa.types.is_dictionary(kind):
        return shown(column.dictionary_decode())
    if pa.types.is_temporal(kind):
        return shown(column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()))
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return [None if one is None else _items(one, kind) for one in column]
    if pa.types.is_struct(kind):
        members = [shown(column.field(i)) for i in range(kind.num_fields)]
        return [[member[at] for member in members] if column[at].is_valid else None for at in range(len(column))]
    return [None if value is None else _plain(kind, value) for value in column.to_pylist()]


def _items(one: pa.Scalar, kind: pa.DataType) -> Any:
    if not one.is_valid:
        return None
    if pa.types.is_map(kind):
        pairs = one.values
        return [list(pair) for pair in zip(shown(pairs.field(0)), shown(pairs.field(1)), strict=True)]
    return shown(one.values)


def _plain(kind: pa.DataType, value: Any) -> Any:
    if pa.types.is_boolean(kind) or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if pa.types.is_floating(kind):
        if math.isnan(value):
            return "nan"
        return struct.pack(">d" if kind == pa.float64() else ">f", value).hex()
    if pa.types.is_decimal(kind):
        return str(int(value.scaleb(kind.scale, context=_EXACT)))
    return str(value)


_EXACT = decimal.Context(prec=100)


def lines_of(rows: pa.Table) -> list[str]:
    """Return rows as lines of JSON."""
    columns = [[value for chunk in column.chunks for value in shown(chunk)] for column in rows.columns]
    return [line(list(row)) for row in zip(*columns, strict=True)]


def line(row: list[Any]) -> str:
    """Return a row as JSON, in one form."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def answer(lines: list[str], keys: int) -> dict[str, Any]:
    """Return what the kit has of rows: rows of equal keys come in any order, so the digest is of sorted lines."""
    rows = [json.loads(one) for one in lines]
    held = [line(row[:keys]) for row in rows]
    facts = {"count": len(lines), "sha256": _sha256(sorted(lines)), "keys": _sha256(held)}
    return facts | {"rows": rows if len(rows) <= ROWS_MAX else rows[:3]}


def _sha256(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def rows_at(table: Any, version: int | None) -> pa.Table:
    """Return the rows of a version; of an index its entries, which are not read otherwise."""
    if not table.state().is_index:
        return (table if version is None else table.at(version)).to_arrow()
    state = table.log.head.state if version is None else table.log.at(version).state
    return Snapshot(state, table.reader, table.storage).scan().read_all()


def tables(root: Path) -> list[dict[str, Any]]:
    """Return the rows of every table of an instance at some versions; null is the latest."""
    lake, found = lakebed.open(str(root)), []
    for name in lake.tables():
        table = lake.table(name)
        keys = len(table.schema.row_key) + len(table.schema.sort_key)
        spread = range(2, table.version, max(1, table.version // VERSIONS_MAX))
        for version in (None, *spread):
            try:
                rows = rows_at(table, version)
            except NotRetainedError:
                continue
            found.append({"table": name, "version": version, "key_fields": keys} | answer(lines_of(rows), keys))
    return found


# -- changed copies ---------------------------------------------------------------------------------------------


def cases(archive: Path) -> list[dict[str, Any]]:
    """Return changed copies of the instance: the objects that differ, and what a reader has to do about a table."""
    found = []
    for name, (table, change, result, names) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = extract(archive, Path(folder)) / "lake"
            before = contents(root)
            change(root, lakebed.open(str(root)).table(table))
            after = contents(root)
        put = {one: base64.b64encode(data).decode() for one, data in after.items() if before.get(one) != data}
        delete = sorted(before.keys() - after.keys())
        found.append({"case": name, "table": table, "put": put, "delete": delete, "result": result, "names": names})
    return found


def _newest(root: Path, pattern: str) -> Path:
    return max(root.glob(pattern))


def _flip(path: Path, at: int = -40) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _header(path: Path, **given: Any) -> None:
    path.write_bytes(rewritten(path.read_bytes(), **given))


def _log(table: Any) -> str:
    return f"tables/{table.id}/log"


LATER = {"type": "alter_settings", "changes": {"later_setting": 7}, "later": [1, {"x": None}]}
CASES: dict[str, Any] = {
    "an entry needs an unknown feature": (
        "newest", lambda _, t: append(t.log, LATER, features=[FEATURE]), "unsupported", FEATURE),
    "readers must know an unknown feature": ("newest", lambda _, t: require(t.log, "readers"), "unsupported", FEATURE),
    "unknown programs must know a feature": ("newest", lambda _, t: require(t.log, "others"), "unsupported", FEATURE),
    "writers must know an unknown feature": ("newest", lambda _, t: require(t.log, "writers"), "rows", ""),
    "collectors must know an unknown feature": ("newest", lambda _, t: require(t.log, "collectors"), "rows", ""),
    "a transaction of an unknown type": (
        "newest", lambda _, t: append(t.log, {"type": "later_kind"}), "unsupported", "later_kind"),
    "a transaction with unknown fields": ("newest", lambda _, t: append(t.log, LATER), "rows", ""),
    "the catalog requires an unknown feature": (
        "newest", lambda r, _: require(lakebed.open(str(r)).catalog_log(), "readers"), "unsupported", FEATURE),
    "the instance needs an unknown feature": (
        "newest", lambda r, _: _header(r / "instance.json", features=[FEATURE]), "unsupported", FEATURE),
    "an object that the page does not name": (
        "newest", lambda r, t: (r / f"tables/{t.id}/later.bin").write_bytes(b"later"), "rows", ""),
    "an entry was changed": (
        "newest", lambda r, t: _flip(_newest(r, f"{_log(t)}/*.ndjson")), "damaged", ""),
    "an entry does not follow the one before": (
        "newest", lambda r, t: _header(_newest(r, f"{_log(t)}/*.ndjson"), fields={"previous": "0" * 32}),
        "damaged", ""),
    "the latest checkpoint was changed": (
        "newest", lambda r, t: _flip(r / f"tables/{t.id}/checkpoints/latest/manifest.ndjson"), "rows", ""),
    "a data file was changed": (
        "first", lambda r, t: _flip(_newest(r, f"tables/{t.id}/data/*/*.parquet"), 60), "damaged", ""),
    "a data file is missing": (
        "first", lambda r, t: _newest(r, f"tables/{t.id}/data/*/*.parquet").unlink(), "damaged", ""),
    "a retained checkpoint was changed": (
        "truncated", lambda r, t: [_flip(one) for one in r.glob(f"tables/{t.id}/checkpoints/*/manifest.ndjson")],
        "damaged", ""),
}  # fmt: skip
"""By name: a table, the change of the instance, what a reader has to do, and what its error has to name."""


def kit(archive: Path) -> dict[str, Any]:
    """Return the whole kit of the instance in an archive."""
    with tempfile.TemporaryDirectory() as folder:
        found = tables(extract(archive, Path(folder)) / "lake")
    return {"instance": "instance.tar.xz, folder lake", "tables": found, "changed": cases(archive)}


def main() -> None:
    made = kit(FOLDER / ARCHIVE)
    text, changed = (
        ",\n  ".join(json.dumps(one, ensure_ascii=False) for one in made[part]) for part in ("tables", "changed")
    )
    head = json.dumps(made["instance"])
    (FOLDER / KIT).write_text(f'{{"instance": {head},\n "tables": [\n  {text}],\n "changed": [\n  {changed}]}}\n')
    print(f"{len(made['tables'])} answers, {len(made['changed'])} changed copies", file=sys.stderr)


if __name__ == "__main__":
    main()
