"""Flips single bits in stored files and reads the table through every interface.

An *interface* reads rows or counts. A *region* is a part of a file with one purpose: the pages of a
column, their headers, a dictionary, a page index, a filter, the block digests, the footer, the summary. A read after a
flip may return the right answer or raise a DamagedError that names the object. Anything else is a finding.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import KeyRange, Schema
from lakebed.errors import DamagedError, Error
from lakebed.files.parquet.footer import read_footer
from lakebed.files.parquet.read_cache import READ_CACHE, READ_CACHE_BYTES
from lakebed.files.parquet.thrift import RAW, decode_struct
from lakebed.model.files import DataFile, data_name, summary_name

ROWS = 1_000
FILES = 5

FLAT = Schema(
    row_key={"name": "string"},
    sort_key={"at": "int64"},
    values={"kind": "string", "reading": "double", "count": "int32", "blob": "binary"},
)
SEVERAL = Schema(
    row_key={"zone": "string", "number": "int64"},
    values={
        "tags": pa.list_(pa.string()),
        "place": pa.struct([("x", pa.int64()), ("y", pa.string())]),
        "facts": pa.map_(pa.string(), pa.int64()),
        "blob": "binary",
    },
)


def rows_of(schema: Schema, file: int) -> pa.Table:
    """Return the rows of one of the files; their keys are spread among those of the others."""
    chance = random.Random(file)
    found = []
    for number in range(ROWS):
        at = number * FILES + file
        row: dict[str, Any] = {"blob": chance.randbytes(140)}
        if schema is FLAT:
            kind = chance.choice(["red", "green", "blue", None])
            row |= {"name": f"n{at // 2:06}", "at": at, "kind": kind, "reading": chance.random(), "count": at % 97}
        else:
            tags = [f"t{chance.randrange(50)}" for _ in range(chance.randrange(5))]
            row |= {
                "zone": f"z{at // 400}",
                "number": at,
                "tags": tags,
                "facts": [(f"f{i}", at + i) for i in range(at % 3)],
            }
            row["place"] = {"x": at, "y": f"y{at % 11}"}
        found.append(row)
    return pa.Table.from_pylist(found, schema=schema.arrow)


def make(root: str, **options: Any) -> None:
    """Make an instance with both tables at the root."""
    lake = lakebed.create(root, **options)
    for name, schema in (("flat", FLAT), ("several", SEVERAL)):
        settings = {"page_rows": 100, "row_group_rows": 1_000}
        table = lake.create_table(name, schema, split_points=[_split(schema)], settings=settings)
        for file in range(FILES):
            table.write(rows_of(schema, file))


def _split(schema: Schema) -> tuple[Any, ...]:
    return ("n001000",) if schema is FLAT else ("z5", 2_100)


@contextmanager
def opened(root: str, name: str, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Open the instance and a table of it, as a new process."""
    lakebed.set_read_cache_bytes(0)
    lakebed.set_read_cache_bytes(READ_CACHE_BYTES)
    lake = lakebed.open(root, **options)
    try:
        yield lake, lake.table(name)
    finally:
        READ_CACHE.limit(0)
        READ_CACHE.limit(READ_CACHE_BYTES)


# -- interfaces -------------------------------------------------------------------------------------------------

Interface = Callable[[Any, Any], Any]


def _keys(table: Any) -> list[tuple[Any, ...]]:
    """Return some existing keys, and a missing one."""
    if table.schema.row_key_names == ("name",):
        return [(f"n{number:06}",) for number in (0, 7, 611, 1_222, 1_949, 9_999)]
    return [(f"z{at // 400}", at) for at in (0, 17, 1_345, 2_500, 3_899, 99_999)]


def _most_keys(table: Any) -> list[tuple[Any, ...]]:
    if table.schema.row_key_names == ("name",):
        return [(f"n{number:06}",) for number in range(0, 1_950, 2)]
    return [(f"z{at // 400}", at) for at in range(0, 3_900, 3)]


def _range(table: Any) -> KeyRange:
    if table.schema.row_key_names == ("name",):
        return KeyRange(("n000700",), ("n000800",))
    return KeyRange(("z3", 1_250), ("z4", 1_700))


def _plain(rows: pa.Table) -> list[dict[str, Any]]:
    return rows.to_pylist()


def _unordered(rows: Any) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def _duckdb(lake: Any, table: Any) -> Any:
    import duckdb

    with duckdb.connect() as connection:
        return _unordered(pa.table(table.to_duckdb(connection=connection).arrow()))


def _registered(lake: Any, table: Any) -> Any:
    from datafusion import SessionContext

    context = SessionContext()
    table.register(context, "t")
    return _unordered(context.sql("SELECT * FROM t").to_arrow_table())


def _registered_range(lake: Any, table: Any) -> Any:
    from datafusion import SessionContext

    context = SessionContext()
    table.register(context, "t", _range(table))
    return _unordered(context.sql("SELECT * FROM t").to_arrow_table())


def _lazy(lake: Any, table: Any) -> Any:
    return table.lazy_polars().collect().to_dicts()


def _merged(lake: Any, table: Any) -> Any:
    """Merge more files than one plan may have under the memory limit."""
    from lakebed.read.rows.reader import Reader

    reader = Reader(table.storage, table.id, lambda file: True, lambda: 1 << 20)
    snapshot = replace(table.snapshot(), reader=reader)
    return _plain(snapshot.scan().read_all())


def _where(table: Any) -> str:
    return "count < 20 and kind = 'red'" if table.schema.row_key_names == ("name",) else "number % 7 = 3"


FOREIGN = ("register", "register_range", "to_duckdb")
"""Interfaces that hand files to an engine of the caller."""


def _aggregated(lake: Any, table: Any) -> Any:
    column = "reading" if "reading" in table.schema.names else "number"
    text = f'SELECT count(*), count(blob), min("{column}"), max("{column}") FROM "{table.name}"'
    return lake.sql(text).read_all().to_pylist()


INTERFACES: dict[str, Interface] = {
    "get": lambda lake, table: [_plain(table.get(*key)) for key in _keys(table)],
    "get_many": lambda lake, table: _plain(table.get_many(_keys(table))),
    "get_many_of_most": lambda lake, table: _plain(table.get_many(_most_keys(table))),
    "scan_range": lambda lake, table: _plain(table.scan(_range(table)).read_all()),
    "scan_all": lambda lake, table: _plain(table.scan().read_all()),
    "scan_where": lambda lake, table: _plain(table.scan(where=_where(table)).read_all()),
    "scan_reverse": lambda lake, table: _plain(table.scan(reverse=True).read_all()),
    "scan_limit": lambda lake, table: _plain(table.scan(limit=50).read_all()),
    "merge_in_levels": _merged,
    "count_exact": lambda lake, table: table.count(_range(table), exact=True),
    "count": lambda lake, table: table.count(_range(table)),
    "sample": lambda lake, table: _plain(table.sample(40, seed=1)),
    "sql_all": lambda lake, table: _unordered(lake.sql(f'SELECT * FROM "{table.name}"').read_all()),
    "sql_aggregate": _aggregated,
    "sql_range": lambda lake, table: _unordered(lake.sql(_sql_range(table)).read_all()),
    "register": _registered,
    "register_range": _registered_range,
    "to_duckdb": _duckdb,
    "lazy_polars": _lazy,
    "to_pandas": lambda lake, table: table.to_pandas(columns=table.schema.sort_names).to_dict("records"),
}


def _sql_range(table: Any) -> str:
    if table.schema.row_key_names == ("name",):
        return "SELECT * FROM flat WHERE name >= 'n000500' AND name < 'n000800' ORDER BY name, at"
    return "SELECT * FROM several WHERE zone = 'z3' AND number > 1300"


# -- regions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Region:
    """Some bytes of a stored object, ``(offset, length)`` each, that have one purpose."""

    name: str
    object: str
    places: tuple[tuple[int, int], ...]


def regions(content: bytes, schema: Schema, name: str) -> list[Region]:
    """Return the regions of a data file."""
    footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
    begin = len(content) - footer_bytes
    metadata = decode_struct(content[begin:-8])
    footer = read_footer(content[begin:], schema, name, len(content))
    assert footer.blocks is not None
    digests = Region("block digests", name, (footer.blocks.byte_range,))
    found = [Region("footer", name, ((begin, footer_bytes),)), digests]
    by_name: dict[str, list[tuple[int, int]]] = {}
    for group in metadata[4]:
        for column in group[1]:
            head = column[3]
            path = b".".join(head[3]).decode()
            for label, at, size in (("offset index", 4, 5), ("column index", 6, 7)):
                if at in column:
                    by_name.setdefault(f"{label} of {path}", []).append((column[at], column[size]))
            if 14 in head:
                by_name.setdefault(f"filter of {path}", []).append((head[14], head[15]))
            at = min(head[9], head.get(11) or head[9])
            while at < min(head[9], head.get(11) or head[9]) + head[7]:
                page = decode_struct(content, at)
                header = len(page[RAW])
                kind = "dictionary" if page[1] == 2 else "pages"
                by_name.setdefault(f"{kind} of {path}", []).append((at + header, page[3]))
                by_name.setdefault(f"headers of {kind} of {path}", []).append((at, header))
                at += header + page[3]
    for group in footer.groups:
        if group.key_filter is not None:
            by_name.setdefault("filters of keys", []).append(group.key_filter)
    return found + [Region(label, name, tuple(places)) for label, places in by_name.items()]


def regions_of(table: Any, root: Path) -> list[Region]:
    """Return the regions of all objects of the table's latest files, on local disk."""
    found = []
    for file in files_of(table):
        data, summary = data_name(table.id, file), summary_name(table.id, file)
        found += regions((root / data).read_bytes(), table.schema, data)
        if file.summarised:
            found.append(Region("summary", summary, ((0, (root / summary).stat().st_size),)))
    return found


def files_of(table: Any) -> list[DataFile]:
    """Return the files of the latest version."""
    state = table.state()
    return list({file.id: file for partition in state.partitions.ids for file in state.files_of(partition)}.values())


# -- flips ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit of an object."""

    region: Region
    offset: int
    bit: int

    @classmethod
    def any_of(cls, regions: Sequence[Region], chance: random.Random) -> Flip:
        """Return a bit in one of the regions, which are equally likely whatever their size."""
        region = chance.choice(regions)
        offset, length = chance.choice([place for place in region.places if place[1]])
        return cls(region, offset + chance.randrange(length), chance.randrange(8))

    def of(self, content: bytes) -> bytes:
        """Return the object with the bit flipped."""
        changed = bytearray(content)
        changed[self.offset] ^= 1 << self.bit
        return bytes(changed)

    @contextmanager
    def on_disk(self, root: Path) -> Iterator[None]:
        """Flip the bit in the file for the duration of the block."""
        descriptor = os.open(root / self.region.object, os.O_RDWR)
        try:
            (byte,) = os.pread(descriptor, 1, self.offset)
            os.pwrite(descriptor, bytes([byte ^ 1 << self.bit]), self.offset)
            try:
                yield
            finally:
                os.pwrite(descriptor, bytes([byte]), self.offset)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of an interface after a flip, if it was neither the right answer nor a DamagedError that names the
    object.
    """

    interface: str
    flip: Flip
    seen: str


def try_interfaces(
    lake: Any,
    table: Any,
    interfaces: Sequence[str],
    expected: Mapping[str, Any],
    flip: Flip,
    *,
    by_ranges: bool = False,
) -> tuple[list[Finding], int]:
    """Read through the interfaces; return the findings, and how many interfaces raised the expected error.

    If files are read ``by_ranges``, an engine of the caller finds the damage while it runs: its error has its own
    class, and must contain the name of the object.
    """
    found, reported = [], 0
    for interface in interfaces:
        try:
            answer = INTERFACES[interface](lake, table)
        except DamagedError as error:
            reported += 1
            if not str(error.facts.get("name", "")).endswith(flip.region.object):
                found.append(Finding(interface, flip, f"named {error.facts.get('name')}"))
        except Error as error:
            found.append(Finding(interface, flip, f"another error: {error!r}"))
        except BaseException as error:  # noqa: BLE001 - a panic of an engine is no Exception
            if by_ranges and interface in FOREIGN and flip.region.object in str(error) and "is damaged" in str(error):
                reported += 1
                continue
            found.append(Finding(interface, flip, f"a foreign error: {type(error)} {error}"))
        else:
            if answer != expected[interface]:
                found.append(Finding(interface, flip, "SILENT"))
    return found, reported
