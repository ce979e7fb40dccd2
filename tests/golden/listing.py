"""The shape of every object of a store as text: the structure that readers depend on, without values that vary from run
to run.

JSON is shown field by field, Parquet by its footer, Arrow by its schema. Ids, digests, times, sentences and numbers
above 99 are replaced by their kind. Long lists and texts are cut, and so are the rows of an export as text. Every
stored word is in it.
"""

from __future__ import annotations

import base64
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.table.puffin import MAGIC_BYTES, PuffinFile

LIST_MAX = 3
SCALARS_MAX = 6
TEXT_MAX = 96
NUMBER_MAX = 99
# A text with this many blanks is for people.
SENTENCE_BLANKS_MIN = 4

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")

KINDS = (
    (re.compile(r"(file://)?/\S*?/inbox/"), "<inbox>/"),
    (re.compile(r"file:///\S*?/(export-\w+)"), r"<outbox>/\1"),
    (re.compile(r"file:///\S*?/lake/tables/"), "<lake>/tables/"),
    (re.compile(r"\b[0-9a-f]{12}-[0-9a-f]{12}-[0-9a-f]{8}\b"), "<record>"),
    (ID, "<id>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<32 hex>"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<64 hex>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)"), "<time>"),
)


def listing(root) -> str:
    """Return every object below ``root`` in the order of the names, each with its shape."""
    shown, tables = [], _tables(root)
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        # What begins with a dot belongs to the file system, as the files that gc deletes when there is no inode left.
        if path.is_file() and not any(part.startswith(".") for part in name.split("/")):
            for table, id in tables.items():
                name = name.replace(id, f"<table {table}>")
            shown.append((_rendered(name), _shape(path)))
    return "\n".join(f"{re.sub('0{10,}', '', name)}\n{shape}" for name, shape in sorted(shown))


def _tables(root):
    """Return ids by name. The document of the transaction, whatever its name, has three texts: the type, an id, and a
    name.
    """
    found = {}
    for path in sorted((root / "lake" / "catalog" / "log").glob("*.ndjson")):
        for line in path.read_text().splitlines()[1:]:
            texts = [value for value in json.loads(line).values() if isinstance(value, str)]
            ids = [text for text in texts if ID.fullmatch(text)]
            if ids and ids[0] not in found.values() and len(texts) == 3:
                found[texts[-1]] = ids[0]
    return found


def _shape(path) -> str:
    data = path.read_bytes()
    if not data:
        lines = ["empty"]
    elif data[:4] == b"PAR1":
        lines = list(_parquet(path))
    elif data[:6] == b"ARROW1":
        lines = list(_arrow(data))
    elif data[:4] == b"Obj\x01":
        lines = list(_avro(data))
    elif data[:4] == MAGIC_BYTES:
        lines = list(_puffin(data))
    elif path.suffix == ".csv":
        lines = data.decode().splitlines()[:2]
    elif data.startswith(b"{\n"):
        lines = [_json(data)]
    else:
        documents = data.decode().splitlines()
        lines = [_json(line) for line in (documents[:1] if "export" in path.parts[-2] else documents)]
    return "".join(f"    {line}\n" for line in lines)


def _json(data) -> str:
    return json.dumps(_cut(json.loads(data)), ensure_ascii=False)


def _cut(value):
    if isinstance(value, dict):
        return {_rendered(key): _cut(item) for key, item in value.items()}
    if isinstance(value, list):
        most = LIST_MAX if any(isinstance(item, list | dict) for item in value) else SCALARS_MAX
        more = [f"… {len(value) - most} more"] if len(value) > most else []
        return [*map(_cut, value[:most]), *more]
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > NUMBER_MAX:
        return "<version>"
    return value


def _text(text) -> str:
    if len(text) > TEXT_MAX:
        try:
            return "base64 of Arrow: " + "; ".join(_arrow(base64.b64decode(text, validate=True)))
        except (ValueError, pa.ArrowInvalid):
            pass
    if text.count(" ") >= SENTENCE_BLANKS_MIN:
        return "<sentence>"
    shown = _rendered(text)
    return shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]}…"


def _rendered(text) -> str:
    for kind, name in KINDS:
        text = kind.sub(name, text)
    return text


def _arrow(data):
    with pa.ipc.open_file(pa.BufferReader(data)) as file:
        yield f"Arrow: {', '.join(f'{field.name} {_field(field)}' for field in file.schema)}"
        for key, value in (file.schema.metadata or {}).items():
            yield f"metadata {key.decode()}: {_text(value.decode())}"


def _avro(data):
    """The fields of the records, from the schema in the header, which is a map of names and bytes."""
    decoder = new_decoder(data)
    schema = json.loads(construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder).meta["avro.schema"])
    yield f"Avro: {', '.join(field['name'] for field in schema['fields'])}"


def _puffin(data):
    for blob in PuffinFile(data).footer.blobs:
        properties = {name: _text(value) for name, value in blob.properties.items()}
        yield f"Puffin: {blob.type} of fields {blob.fields}, {blob.length} bytes, {_json(json.dumps(properties))}"


def _field(field) -> str:
    kind = field.type
    if pa.types.is_list(kind):
        inner = f"list<{_field(kind.value_field)}>"
    elif pa.types.is_struct(kind):
        inner = f"struct<{', '.join(f'{kind.field(i).name} {_field(kind.field(i))}' for i in range(kind.num_fields))}>"
    else:
        inner = str(kind)
    return inner + ("" if field.nullable else " not null")


def _parquet(path):
    file = pq.ParquetFile(path)
    metadata, arrow = file.metadata, file.schema_arrow
    first = metadata.row_group(0)
    yield f"Parquet: {metadata.num_rows} rows, {metadata.num_row_groups} row groups, version {metadata.format_version}"
    for index, field in enumerate(arrow):
        id = (field.metadata or {}).get(b"PARQUET:field_id", b"-").decode()
        yield f"column {index} {field.name} {_field(field)}, id {id}"
    columns = [first.column(index) for index in range(first.num_columns)]
    yield f"compression {sorted({column.compression for column in columns})}"
    indexed = {(column.has_offset_index, column.has_column_index) for column in columns}
    yield f"offset index, column index {sorted(indexed)}"
    filtered = [index for index, column in enumerate(columns) if column.bloom_filter_offset is not None]
    yield f"filters of columns {filtered}"
    sorting = [(one.column_index, one.descending, one.nulls_first) for one in first.sorting_columns]
    yield f"sorting columns {sorting}"
    for key, value in sorted((metadata.metadata or {}).items()):
        text = value.decode(errors="replace")
        yield f"metadata {key.decode()}: {_json(text) if text.startswith('{') else '<text>'}"
