"""A second reader of Lakebed's tables, written from docs/format.md alone, on the standard library and PyArrow.

    python examples/second_reader.py FOLDER TABLE [VERSION]

It prints the rows of a table of an instance on local disk, one JSON object a line. It shows that the page is enough to
read a table without Lakebed, and what a reader in another language has to do. Numbers are those of the page's sections.

What it leaves out: logs in databases, bounds and filters (8.1, 7), with which other readers skip files, and digests of
blocks (7). Digests of entries are checked if the package xxhash is installed. Functions of the user's own, unions of
sketches, and SQL beyond comparisons, logic and simple aggregates of integers and text are refused.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sqlite3
import struct
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial, reduce
from itertools import groupby, pairwise
from operator import or_
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

try:
    from xxhash import xxh3_128_hexdigest as digest_of
except ImportError:
    digest_of = None

KIND, HAS = 2**30, 2**30
"""Field ids of the hidden columns of 7.1: the kind of a row, and for field N whether a partial row has it."""

# -- objects, entries and checkpoints: sections 1, 3 and 6 ------------------------------------------------------


class UnreadableError(Exception):
    """An object that this reader cannot read, or that is not what the specification says."""


def check(true, what):
    if not true:
        raise UnreadableError(what)


def check_features(features):
    """Refuse features that readers must know; those of writers and collectors do not concern this program (5.2)."""
    concerning = [name for name, of in features.items() if of not in (None, "writers", "collectors")]
    unknown = [name for name in concerning if name != "sql-datafusion-1"]
    check(not unknown, f"of features that this reader does not know: {', '.join(unknown)}")


def header_and_lines(data, log=None):
    """Return the header of a document, such as an entry or a manifest, and the JSON lines after it (1, 3, 6)."""
    header = json.loads(data.partition(b"\n")[0])
    check(header["format"] == 2, f"of format {header['format']}, which this reader does not know")
    check_features(dict.fromkeys(header["features"], "readers"))
    check(log is None or header["log"] == log, f"of log {header.get('log')}, not {log}")
    hidden = data.replace(header["digest"].encode(), b"?" * 32, 1)
    check(digest_of is None or header["digest"] == digest_of(hidden), "the digest of the document differs")
    return header, [json.loads(line) for line in data.splitlines()[1:]]


def entries_from(folder, log, after, previous):
    """Yield the entries of a log after a version, each with its transactions, until one is missing (3)."""
    version = after + 1
    while (path := folder / f"{version:020}.ndjson").exists():
        data = path.read_bytes()
        header, lines = header_and_lines(data, log)
        check(header["version"] == version and header["count"] == len(lines), f"entry {version} is another one")
        check(digest_of is None or previous in (None, header["previous"]), f"entry {version} follows another one")
        yield version, header, lines
        previous, version = digest_of and digest_of(data), version + 1


def sidecar_rows(folder, header, reference):
    """Return a list of references or pairs that lies in a sidecar (3.3)."""
    if isinstance(reference, list):
        return reference
    digest = reference["sidecar"]
    version = next(version for version, other, *_ in header["sidecars"] if other == digest)
    data = (folder / f"sidecars/{version:020}-{digest}.arrow").read_bytes()
    check(digest_of is None or digest_of(data) == digest, "the digest of a sidecar differs")
    rows = pa.ipc.open_file(data).read_all()
    check(rows.num_rows == reference["references"], "a sidecar has another number of references")
    return list(zip(*(rows.column(name).to_pylist() for name in rows.column_names), strict=True))


def table_ids(root, instance):
    """Return the ids of the tables by name: the catalog's log is never truncated (4)."""
    names = {}
    for change in (one for _, _, changes in entries_from(root / "catalog/log", instance, 0, "") for one in changes):
        if change["type"] in ("register_table", "rename_table"):
            names[change["table"]] = change["name"]
        elif change["type"] == "purge_table":
            names.pop(change["table"], None)
    return {name: table for table, name in names.items()}


# -- the state of a table: section 5 ----------------------------------------------------------------------------


@dataclass
class State:
    """What of a table's state a reader needs. ``held`` are the ids of files by partition, in the order of arrival."""

    version: int = 0
    schemas: list = field(default_factory=list)
    boundaries: list = field(default_factory=list)
    partitions: list = field(default_factory=lambda: [1])
    next_partition: int = 2
    files: dict = field(default_factory=dict)
    held: dict = field(default_factory=dict)
    merge: dict | None = None
    hidden: dict | None = None
    cut_us: int = 0
    dropped: bool = False

    def refer(self, references):
        """Add references at the end of their partitions."""
        for file, partition, *_ in references:
            self.held.setdefault(partition, []).append(file)

    def cut(self, regions, references):
        """Replace the partitions of each region by others, and their references by these."""
        for partitions, keys in regions:
            first, count = self.partitions.index(partitions[0]), len(partitions)
            ids = list(range(self.next_partition, self.next_partition + len(keys) + 1))
            self.next_partition = ids[-1] + 1
            self.partitions[first : first + count] = ids
            self.boundaries[first : first + count - 1] = [bytes.fromhex(key) for key in keys]
            for partition in partitions:
                self.held.pop(partition, None)
        self.refer(references)

    def replace(self, drop, references):
        """Drop and add references; where rows are merged, the new ones take the place of the last that goes (7.1)."""
        added, going = {}, {}
        for file, partition, *_ in references:
            added.setdefault(partition, []).append(file)
        for file, partition in drop:
            going.setdefault(partition, set()).add(file)
        for partition in going.keys() | added.keys():
            old, gone = self.held.get(partition, []), going.get(partition, set())
            last = max((at for at, file in enumerate(old) if file in gone), default=len(old))
            place = len(old) if self.merge is None else last + 1
            kept = [[file for file in part if file not in gone] for part in (old[:place], old[place:])]
            self.held[partition] = [*kept[0], *added.get(partition, []), *kept[1]]

    def apply(self, change, read):
        """Apply a transaction; ``read`` gives the references of a list that may lie in a sidecar."""
        self.files |= {file["id"]: file for file in change.get("files", ()) if isinstance(file, dict)}
        match change["type"]:
            case "create_table":
                self.schemas, self.merge = [change["schema"]], change.get("merge")
                self.boundaries = [bytes.fromhex(key) for key in change["boundaries"]]
                self.partitions = list(range(1, len(self.boundaries) + 2))
                self.next_partition = len(self.partitions) + 1
            case "add_files":
                self.refer(read(change["references"]))
            case "replace":
                self.replace(read(change["drop"]), read(change["references"]))
            case "drop_expired":
                for file, partition in read(change["drop"]):
                    self.held[partition].remove(file)
            case "split_partitions" | "remove_range":
                self.cut([([partition], keys) for partition, keys in change["cuts"]], read(change["references"]))
                for partition in change.get("partitions", ()):
                    self.held.pop(partition, None)
            case "join_partitions":
                self.cut([(change["partitions"], [])], read(change["references"]))
            case "restore_version":
                self.cut(change["regions"], read(change["references"]))
            case "alter_schema":
                self.schemas.append(change["schema"])
                self.merge = change.get("merge", self.merge)
            case "set_merge":
                self.merge = change["merge"]
            case "set_filter":
                self.hidden, self.cut_us = change["filter"], change["cut_us"]
            case "raise_watermark":
                if change["mark"] == "age_off_cut_us":
                    self.cut_us = change["value"]
            case "require_features":
                check_features(change["features"])
            case "drop_table":
                self.dropped = True
            case (
                "open_job" | "close_job" | "concatenate_runs" | "alter_settings" | "advance_view" | "retire_files" |
                "purge_files" | "set_tag" | "remove_tag" | "submit_requests" | "fail_request" | "reject_request" |
                "add_index" | "drop_index"):  # fmt: skip
                pass
            case other:
                raise UnreadableError(f"a transaction of an unknown type: {other}")


def state_at(root, table, wanted=None):
    """Return the state of a table at a version, the latest if it is None (1.1, 6)."""
    log, checkpoints = root / "tables" / table / "log", root / "tables" / table / "checkpoints"
    state, previous = State(), ""
    if not (log / f"{1:020}.ndjson").exists():
        usable = [int(path.name) for path in checkpoints.iterdir() if path.name.isdigit()]
        start, _ = header_and_lines((log / "log-start.ndjson").read_bytes())
        usable = [v for v in usable if v == wanted or (v >= start["log_start"] and (wanted is None or v <= wanted))]
        check(usable, f"no retained checkpoint is old enough for version {wanted}")
        state, previous = checkpoint(checkpoints / f"{max(usable):020}", table)
    for version, header, changes in entries_from(log, table, state.version, previous):
        if wanted is not None and version > wanted:
            break
        for change in changes:
            state.apply(change, lambda listed, header=header: sidecar_rows(log, header, listed))
        state.version = version
    check(wanted in (None, state.version), f"version {wanted} is not there; the newest is {state.version}")
    return state


def checkpoint(folder, table):
    """Return the state that a checkpoint has, and the digest of its entry (6)."""
    header, (document,) = header_and_lines((folder / "manifest.ndjson").read_bytes(), table)
    stored = document["state"]
    check_features(stored.get("features", {}))
    boundaries = [bytes.fromhex(key) for key in stored["boundaries"]]
    state = State(stored["version"], stored["schemas"], boundaries, stored["partitions"], stored["next_partition"])
    state.merge, state.hidden = stored.get("merge"), stored.get("filter")
    state.cut_us, state.dropped = stored.get("age_off_cut_us", 0), stored["dropped"]
    for segment in document["segments"]["references"]:
        rows = segment_rows(folder, segment)
        files = [file for row in rows for file in row["files"]]
        state.files |= {file["id"]: file for file in files}
        state.held |= {row["partition"]: [files[number]["id"] for number in row["file"]] for row in rows}
    return state, header["entry_digest"]


def segment_rows(folder, segment):
    """Return the rows of a segment, which lies in the manifest or beside it."""
    if isinstance(segment, str):
        return pa.ipc.open_file(base64.b64decode(segment)).read_all().to_pylist()
    data = (folder / "segments" / f"{segment[0]}.arrow").read_bytes()
    check(digest_of is None or digest_of(data) == segment[1], "the digest of a segment differs")
    return pa.ipc.open_file(data).read_all().to_pylist()


# -- types and keys: sections 5 and 9 ---------------------------------------------------------------------------


def arrow_type(stored):
    """Return the Arrow type that a type in a schema stands for."""
    if isinstance(stored, dict):
        ((kind, inner),) = stored.items()
        match kind:
            case "struct":
                # Files have nulls in every member of a null struct, also where the schema says that none is null (7).
                return pa.struct([(name, arrow_type(of)) for name, of, _ in inner])
            case "list":
                return pa.list_(arrow_type(inner))
            case "dictionary":
                return arrow_type(inner)
            case "fixed_size_list":
                return pa.list_(arrow_type(inner[0]), inner[1])
            case "map":
                return pa.map_(arrow_type(inner[0]), arrow_type(inner[1]))
    name, _, inside = stored.rstrip(")]").replace("(", "[").partition("[")
    words = [word.strip() for word in inside.split(",")] if inside else []
    if name == "timestamp":
        return pa.timestamp(words[0], words[1].removeprefix("tz=") if len(words) > 1 else None)
    if words and words != ["day"]:
        made = getattr(pa, {"fixed_size_binary": "binary"}.get(name, name))
        return made(*(int(word) if word.lstrip("-").isdigit() else word for word in words))
    return {"uuid": pa.uuid(), "json": pa.json_()}.get(name) or pa.type_for_alias(name)


def fields_of(schema):
    return [*schema["row_key"], *schema["sort_key"], *schema["values"]]


def encoded(column):
    """Return the encoding of each value of a key field (9)."""
    column = column.storage if isinstance(column.type, pa.BaseExtensionType) else column
    kind, values = column.type, column.to_pylist()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        return [text.replace(b"\0", b"\0\xff") + b"\0\1" for text in texts]
    if pa.types.is_boolean(kind) or pa.types.is_fixed_size_binary(kind):
        return [value if isinstance(value, bytes) else bytes([value]) for value in values]
    width = kind.bit_width // 8
    if pa.types.is_floating(kind):
        return [encoded_float(value, width) for value in values]
    if pa.types.is_decimal(kind):
        values = [int(Fraction(value) * 10**kind.scale) for value in values]
    if pa.types.is_temporal(kind):
        values = column.cast(pa.int32() if width == 4 else pa.int64()).to_pylist()
    lowest = 0 if pa.types.is_unsigned_integer(kind) else 1 << (8 * width - 1)
    return [(value + lowest).to_bytes(width, "big") for value in values]


def encoded_float(value, width):
    bits = int.from_bytes(struct.pack(">f" if width == 4 else ">d", value), "big")
    top = 1 << (8 * width - 1)
    return (bits ^ (2 * top - 1) if bits & top else bits | top).to_bytes(width, "big")


def keys_of(rows, fields):
    """Return the encoded key of each row, of these fields."""
    parts = [encoded(rows.column(f["name"])) for f in fields]
    return [b"".join(key) for key in zip(*parts, strict=True)] if parts else [b""] * rows.num_rows


# -- rows: section 7 --------------------------------------------------------------------------------------------


class Row(NamedTuple):
    key: bytes
    order: bytes
    values: dict  # the keys encoded, values by name


def rows_of_file(root, table, file, schema):
    """Return the rows of a data file as the schema has them: columns are found by field id, and cast if narrower."""
    path = root / f"tables/{table}/data/{file['job']}/{file['id']}.parquet"
    check(digest_of is None or digest_of(path.read_bytes()) == file["digest"], f"the digest of {path} differs")
    stored = pq.read_table(path).combine_chunks()
    check(stored.num_rows == file["rows"], f"file {file['id']} has {stored.num_rows} rows")
    by_id = {int((f.metadata or {}).get(b"PARQUET:field_id", b"-1")): n for n, f in enumerate(stored.schema)}
    columns = {}
    for wanted in fields_of(schema):
        kind, at = arrow_type(wanted["type"]), by_id.get(wanted["id"])
        missing = at is None
        columns[wanted["name"]] = pa.nulls(len(stored), kind) if missing else as_type(stored.column(at).chunk(0), kind)
    hidden = {KIND: "kind of row"} | {HAS + f["id"]: f"has {f['name']}" for f in schema["values"]}
    columns |= {name: stored.column(by_id[id_]).chunk(0) for id_, name in hidden.items() if id_ in by_id}
    rows = pa.record_batch(list(columns.values()), names=list(columns))
    keys, orders = keys_of(rows, schema["row_key"]), keys_of(rows, schema["sort_key"])
    return list(map(Row, keys, orders, rows.to_pylist()))


def as_type(column, kind):
    """Return a column in the type of its field."""
    if isinstance(kind, pa.BaseExtensionType) and column.type != kind:
        return pa.ExtensionArray.from_storage(kind, column.cast(kind.storage_type))
    return column.cast(kind)


def rows_of(root, table, state):
    """Return the rows of a state in key order, merged and without the hidden ones (7, 7.1, 7.2)."""
    check(not state.dropped, "the table is dropped")
    schema, rows = state.schemas[-1], []
    files = cache(lambda name: rows_of_file(root, table, state.files[name], schema))
    edges = [b"", *state.boundaries, None]
    for (low, high), partition in zip(pairwise(edges), state.partitions, strict=True):
        # A file's rows outside of the partition do not count: they may have been superseded.
        stored = (row for name in state.held.get(partition, []) for row in files(name))
        live = [row for row in stored if low <= row.key and (high is None or row.key < high)]
        rows += merged(live, state.merge, schema)
    return shown_rows([row.values for row in rows], state, schema)


# -- merged rows: section 7.1 -----------------------------------------------------------------------------------


def merged(arrived, mode, schema):
    """Return the rows of a partition, which come in the order of arrival, merged and in key order."""
    name = "keep_all" if mode is None else mode["mode"]
    if name == "keep_all":
        return sorted(arrived, key=lambda row: (row.key, row.order))
    if name == "custom":
        return by_query(arrived, mode, schema)
    merge_key = (lambda row: (row.key, row.order)) if name == "aggregate" else (lambda row: row.key)
    found = []
    for _, group in groupby(sorted(arrived, key=merge_key), merge_key):
        rows = list(group)
        if name == "first":
            found.append(rows[0])
        elif name == "latest":
            found += latest(rows, mode, schema)
        else:
            found.append(aggregated(rows, mode["functions"], schema))
    return found


def latest(rows, mode, schema):
    """Return the row that whole rows, partial rows and deletes of one key leave, or none."""
    if mode["by"] == "sort_key":
        rows = sorted(rows, key=lambda row: row.order)
    last, values, names = None, {}, [f["name"] for f in schema["values"]]
    for row in rows:
        kind = row.values.get("kind of row") or 0
        if kind == 2:
            last, values = None, {}
            continue
        last, has = row, [name for name in names if kind == 0 or row.values.get(f"has {name}")]
        values |= {name: row.values[name] for name in has}
    if last is None:
        return []
    keys = {f["name"]: last.values[f["name"]] for f in (*schema["row_key"], *schema["sort_key"])}
    return [Row(last.key, last.order, keys | dict.fromkeys(names) | values)]


def by_query(rows, mode, schema):
    """Return the rows that the query of a custom mode gives for all of these."""
    check("sql" in mode, f"the merge mode {mode} needs a function of the user's")
    fields = fields_of(schema)
    cursor = by_sqlite(mode["sql"], mode["sql"], [row.values for row in rows], fields)
    found = [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in cursor]
    batch = pa.RecordBatch.from_pylist(found, pa.schema([(f["name"], arrow_type(f["type"])) for f in fields]))
    return sorted(map(Row, keys_of(batch, schema["row_key"]), keys_of(batch, schema["sort_key"]), found))


def aggregated(rows, functions, schema):
    """Return one row with the function of each value field."""
    values = {f["name"]: rows[0].values[f["name"]] for f in (*schema["row_key"], *schema["sort_key"])}
    for wanted in schema["values"]:
        given = [row.values[wanted["name"]] for row in rows if row.values[wanted["name"]] is not None]
        values[wanted["name"]] = AGGREGATES[functions[wanted["name"]]](given) if given else None
    return Row(rows[0].key, rows[0].order, values)


def extreme(of, values):
    """Return the least or greatest value, NaN only if there is no other; texts by their bytes."""
    numbers = [v for v in values if not (isinstance(v, float) and math.isnan(v))] or values[:1]
    return of(numbers, key=lambda v: v.encode() if isinstance(v, str) else v)


def by_key(of, maps):
    """Return the function of the values of each key of these maps, keys ascending."""
    known: dict = {}
    for key, value in (pair for one in maps for pair in one):
        known.setdefault(key, []).extend([] if value is None else [value])
    return [(key, of(values) if values else None) for key, values in sorted(known.items())]


def total(values):
    return sum(values) if values else None


def only(values):
    check(len(values) == 1, "a union of sketches, which this reader lacks")
    return values[0]


LEAST, GREATEST = partial(extreme, min), partial(extreme, max)
AGGREGATES = {
    "sum": sum, "count": sum, "product": math.prod, "min": LEAST, "max": GREATEST, "any": any, "all": all,
    "mean": lambda pairs: {part: total([one[part] for one in pairs if one[part] is not None]) for part in pairs[0]},
    "first": lambda values: values[0], "last": lambda values: values[-1], "or": partial(reduce, or_),
    "list": lambda lists: [item for one in lists for item in one], "join": ",".join, "hll": only, "quantiles": only,
    "set": lambda lists: sorted({item for one in lists for item in one}, key=lambda item: (item is None, item)),
    "map_sum": partial(by_key, sum), "map_min": partial(by_key, LEAST), "map_max": partial(by_key, GREATEST),
}  # fmt: skip

# -- hidden rows: section 7.2 -----------------------------------------------------------------------------------

WORDS = re.compile("(?i)select|from|rows|group|by|as|and|or|not|in|is|null|between|max|min|sum|count")


def by_sqlite(query, text, rows, fields):
    """Run a query over these columns of the rows. SQLite has the answers of the dialect (1.3) for a part of it."""
    names = [f["name"] for f in fields]
    tokens = re.findall(r"'[^']*'|\"[^\"]*\"|\w+|[<>=!]+|[(),*+-]", text)
    known = all(WORDS.fullmatch(one) or one in names for one in tokens if one[0].isalpha() or one[0] == "_")
    plain = all(f["type"] in ("string", "int8", "int16", "int32", "int64") for f in fields)
    check(known and plain and "".join(tokens) == re.sub(r"\s", "", text), f"SQL that this reader lacks: {text}")
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE rows ({', '.join(json.dumps(name) for name in names)})")
    values = [[row[name] for name in names] for row in rows]
    database.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * len(names))})", values)
    return database.execute(query)


def shown_rows(rows, state, schema):
    """Return the rows that the filter and the age-off of the table show."""
    hidden = state.hidden or {"predicate": "", "age_field": 0}
    if hidden["age_field"] and state.cut_us:
        aged = next(f for f in fields_of(schema) if f["id"] == hidden["age_field"])
        before = partial(is_before, arrow_type(aged["type"]), hidden["unit"], state.cut_us)
        rows = [row for row in rows if row[aged["name"]] is None or not before(row[aged["name"]])]
    if predicate := hidden["predicate"]:
        named = [f for f in fields_of(schema) if f["id"] in hidden["columns"]]
        true = by_sqlite(f"SELECT rowid FROM rows WHERE {predicate}", predicate, rows, named)
        rows = [rows[number - 1] for (number,) in true]
    return rows


def is_before(kind, unit, cut_us, value):
    """Return whether a value is before the cut of an age-off."""
    if pa.types.is_date32(kind):
        return pa.scalar(value, kind).value < cut_us // 86_400_000_000
    if pa.types.is_timestamp(kind):
        value, unit = pa.scalar(value, kind).value, kind.unit
    return value * 10**6 < cut_us * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]


# -- the command ------------------------------------------------------------------------------------------------


def read(root, name, version=None):
    """Return the rows of a table of an instance on local disk, in key order."""
    instance, _ = header_and_lines((root / "instance.json").read_bytes())
    check(not instance["log_url"], "the log lies elsewhere")
    table = table_ids(root, instance["instance"])[name]
    return rows_of(root, table, state_at(root, table, version))


if __name__ == "__main__":
    folder, table_name, *rest = sys.argv[1:]
    for one in read(Path(folder), table_name, int(rest[0]) if rest else None):
        print(json.dumps(one, default=str))
