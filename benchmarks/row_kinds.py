"""Rows for benchmarks, with keys of several kinds: a format or sort that suits one of them may not suit another.

Core: :data:`KINDS`, by name. Each kind has a schema and makes rows from a seed, in no order.

* ``prefix``: text of 21 bytes that begins with ``user-``. For sorts that compare the first 8 or 12 bytes of a text in
  registers, 3 or 7 of these differ.
* ``hex``: 16 hexadecimal digits; keys differ from the first digit on. ``short``: 5 to 8 characters. ``long``: 120
  bytes, the first 100 of which are one of 50 paths.
* ``composite``: a text of 20 values, then a number. ``integer``: a number.
* ``skewed``: one key has a third of the rows, and the keys of the rest follow a power law.
* ``wide``: 40 value columns of numbers, texts, times, lists and structs. ``narrow``: a key and one number.

All but the last two have a time in the sort key, a small number and a text of 32 hexadecimal digits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import lakebed

Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class KindOfRows:
    """A kind of rows; ``keys`` makes ``count`` values of each row key column."""

    name: str
    row_key: dict[str, Any]
    keys: Callable[[Random, int], dict[str, pa.Array]]
    values: str = "usual"

    @property
    def schema(self) -> lakebed.Schema:
        match self.values:
            case "wide":
                return lakebed.Schema(self.row_key, {"ts": "int64"}, {f.name: f.type for f in _wide_schema()})
            case "narrow":
                return lakebed.Schema(self.row_key, values={"count": "int64"})
            case _:
                return lakebed.Schema(self.row_key, {"ts": "int64"}, {"count": "int64", "value": "string"})

    def rows(self, count: int, seed: int) -> pa.Table:
        """Return ``count`` rows in no order."""
        random = np.random.default_rng(seed)
        columns = self.keys(random, count)
        if self.values != "narrow":
            columns["ts"] = pa.array(random.integers(1_600_000_000_000, 1_700_000_000_000, count))
        if self.values == "wide":
            columns |= _wide_values(random, count)
        else:
            columns["count"] = pa.array(random.integers(0, 1000, count))
        if self.values == "usual":
            columns["value"] = text("%032x", random.integers(0, 2**62, count))
        return pa.table(columns)

    def sorted_rows(self, count: int, seed: int) -> pa.Table:
        """Return the same rows in the order of row key, then sort key."""
        rows = self.rows(count, seed)
        return rows.sort_by([(name, "ascending") for name in self.schema.sort_names])


def text(form: str, numbers: Any) -> pa.Array:
    """Format each number as text."""
    return pa.array(np.char.mod(form, numbers).tolist(), pa.string())


def _prefix(random: Random, count: int) -> dict[str, pa.Array]:
    return {"key": text("user-%016x", random.integers(0, 2**62, count))}


def _hex(random: Random, count: int) -> dict[str, pa.Array]:
    return {"key": text("%016x", random.integers(0, 2**63, count))}


def _short(random: Random, count: int) -> dict[str, pa.Array]:
    return {"key": text("%x", random.integers(2**16, 2**32, count))}


def _long(random: Random, count: int) -> dict[str, pa.Array]:
    paths = np.array(["/".join(["https://example.com/of/items", f"{path:03d}", "x" * 68]) for path in range(50)])
    keys = np.char.add(paths[random.integers(0, 50, count)], np.char.mod("%020d", random.integers(0, 2**62, count)))
    return {"key": pa.array(keys.tolist(), pa.string())}


def _composite(random: Random, count: int) -> dict[str, pa.Array]:
    return {
        "region": text("region-%02d", random.integers(0, 20, count)),
        "id": pa.array(random.integers(-(2**62), 2**62, count)),
    }


def _integer(random: Random, count: int) -> dict[str, pa.Array]:
    return {"key": pa.array(random.integers(-(2**62), 2**62, count))}


def _skewed(random: Random, count: int) -> dict[str, pa.Array]:
    numbers = np.minimum(random.zipf(1.1, count), 2**40)
    numbers[random.random(count) < 1 / 3] = 1
    return {"key": text("%012x", numbers * 2_654_435_761 % 2**48)}


def _wide_schema() -> pa.Schema:
    kinds = [
        pa.int64(), pa.float64(), pa.string(), pa.timestamp("us"), pa.int32(), pa.bool_(),
        pa.list_(pa.int64()), pa.struct({"a": pa.int64(), "b": pa.string()}), pa.string(), pa.date32(),
    ]  # fmt: skip
    return pa.schema([(f"v{number:02d}", kinds[number % len(kinds)]) for number in range(40)])


def _wide_values(random: Random, count: int) -> dict[str, pa.Array]:
    """Return four columns of each: near-unique and repeated texts, numbers, times, lists of none to four, structs."""
    columns: dict[str, pa.Array] = {}
    for number, field in enumerate(_wide_schema()):
        columns[field.name] = _wide_column(random, count, number % 10)
        assert columns[field.name].type == field.type, field
    return columns


def _wide_column(random: Random, count: int, kind: int) -> pa.Array:
    match kind:
        case 0:
            return pa.array(random.integers(0, 10**9, count))
        case 1:
            return pa.array(random.normal(size=count))
        case 2:
            return text("%012x", random.integers(0, 2**48, count))
        case 3:
            times = random.integers(1_600_000_000_000_000, 1_700_000_000_000_000, count)
            return pa.array(times).cast(pa.timestamp("us"))
        case 4:
            return pa.array(random.integers(0, 10**6, count).astype(np.int32))
        case 5:
            return pa.array(random.random(count) < 0.5)
        case 6:
            ends = np.concatenate([[0], np.cumsum(random.integers(0, 5, count))]).astype(np.int32)
            return pa.ListArray.from_arrays(pa.array(ends), pa.array(random.integers(0, 1000, ends[-1])))
        case 7:
            members = [pa.array(random.integers(0, 1000, count)), text("%06x", random.integers(0, 2**24, count))]
            return pa.StructArray.from_arrays(members, ["a", "b"])
        case 8:
            return text("state-%d", random.integers(0, 12, count))
        case _:
            return pa.array(random.integers(18_000, 20_000, count).astype(np.int32)).cast(pa.date32())


_TEXT = {"key": "string"}

KINDS = {
    kind.name: kind
    for kind in (
        KindOfRows("prefix", _TEXT, _prefix),
        KindOfRows("hex", _TEXT, _hex),
        KindOfRows("short", _TEXT, _short),
        KindOfRows("long", _TEXT, _long),
        KindOfRows("composite", {"region": "string", "id": "int64"}, _composite),
        KindOfRows("integer", {"key": "int64"}, _integer),
        KindOfRows("skewed", _TEXT, _skewed),
        KindOfRows("wide", _TEXT, _hex, "wide"),
        KindOfRows("narrow", _TEXT, _hex, "narrow"),
    )
}
