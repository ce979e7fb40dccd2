"""The type and range of every field of a document, as docs/format.md has them: one table for writing and for reading.

A codec checks a document before it is put and after it is read, so that a value of a wrong type is neither written nor
believed. Python would do with either: ``True`` passes for 1 and ``7`` for a key, until columns of one type are made of
them. Fields that are not in the table are left to whoever reads them. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from lakebed.model.checks import INT64_MAX, TABLE_NAME, TAG_NAME, is_text, is_whole, shown

_ID = re.compile(r"[0-9a-z][0-9a-z-]{0,63}", re.ASCII)
"""Ids are parts of object names. Writers make longer ones than a reader insists on."""

_HEX = re.compile(r"[0-9a-f]*", re.ASCII)
"""Decoding tells an odd number of digits."""

_REFERENCE = [str, int, int, bool, str]


@dataclass(frozen=True, slots=True)
class ValueShape:
    """What a field may be: in words, and as a predicate. One that is not ``required`` may be missing, too."""

    what: str
    holds: Callable[[Any], bool]
    required: bool = True


def check(document: Mapping[str, Any], shape: Mapping[str, ValueShape], name: str) -> None:
    """Raise ValueError, which names the field and its value, unless every field of the shape is there and fits."""
    for field, kind in shape.items():
        if field not in document:
            if not kind.required:
                continue
            raise ValueError(f"{name} has no {field}")
        if not kind.holds(document[field]):
            raise ValueError(f"{field} of {name} is {shown(document[field])}, not {kind.what}")


def _text_like(what: str, pattern: re.Pattern[str]) -> ValueShape:
    return ValueShape(what, lambda value: is_text(value) and pattern.fullmatch(value) is not None)


def _listed(kind: ValueShape) -> ValueShape:
    return ValueShape(f"a list, each {kind.what}", lambda value: type(value) is list and all(map(kind.holds, value)))


def _optional(kind: ValueShape) -> ValueShape:
    return ValueShape(f"{kind.what} or null", lambda value: value is None or kind.holds(value))


def _omissible(kind: ValueShape) -> ValueShape:
    """Of a field that is left out where it has its default."""
    return ValueShape(kind.what, kind.holds, required=False)


def _row(*kinds: ValueShape) -> ValueShape:
    """A list of one value of each kind."""

    def holds(value: Any) -> bool:
        return (
            type(value) is list
            and len(value) == len(kinds)
            and all(kind.holds(one) for kind, one in zip(kinds, value, strict=True))
        )

    return ValueShape(f"a list of {', '.join(kind.what for kind in kinds)}", holds)


def _object(shape: Mapping[str, ValueShape], what: str) -> ValueShape:
    def holds(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            kind.holds(value[field]) if field in value else not kind.required for field, kind in shape.items()
        )

    return ValueShape(what, holds)


def _is_setting(value: Any) -> bool:
    return is_whole(value, -(2**63)) or is_text(value) or (type(value) is float and math.isfinite(value))


def _is_reference(row: Any) -> bool:
    return type(row) is list and list(map(type, row)) == _REFERENCE and is_whole(row[1], 1) and is_whole(row[2])


_FILE = {
    "id": str, "job": str, "min_key": str, "max_key": str, "digest": str, "footer_digest": str, "rows": int,
    "size_bytes": int, "schema_version": int, "last_modified_us": int, "footer_bytes": int,
}  # fmt: skip
_FILE_TYPES = tuple(_FILE.values())
_file_values = itemgetter(*_FILE)
_id_like, _hex_like = _ID.fullmatch, _HEX.fullmatch


def _is_file(value: Any) -> bool:
    """At once, and not field by field: files are most of what entries hold, and each reader checks all of them."""
    if not isinstance(value, Mapping) or not all(map(value.__contains__, _FILE)):
        return False
    facts = _file_values(value)
    if tuple(map(type, facts)) != _FILE_TYPES:
        return False
    id_, job, low, high, digest, footer, rows, size, version, last_modified, footer_bytes = facts
    bounds = value.get("bounds", "")
    if type(bounds) is not str or not _hex_like(bounds):
        return False
    texts = _id_like(id_) and _id_like(job) and _hex_like(low) and _hex_like(high) and is_text(digest + footer)
    return (
        bool(texts)
        and 0 < min(rows, size, version) <= max(rows, size, version, last_modified, footer_bytes) <= INT64_MAX
        and (min(last_modified, footer_bytes) >= 0)
    )


TEXT = ValueShape("a text", is_text)
WHOLE = ValueShape("a whole number, 0 or more", is_whole)
POSITIVE = ValueShape("a whole number above 0", lambda value: is_whole(value, 1))
FLAG = ValueShape("true or false", lambda value: isinstance(value, bool))
ID = _text_like("an id", _ID)
HEX = _text_like("hex digits", _HEX)
TABLE = _text_like("a name of a table", TABLE_NAME)
TAG = _text_like("a name of a tag", TAG_NAME)
SETTINGS = ValueShape(
    "an object of numbers and texts",
    lambda value: isinstance(value, Mapping) and all(is_text(name) and _is_setting(one) for name, one in value.items()),
)
CHANGES = ValueShape(
    "an object of numbers, texts and nulls",
    lambda value: (
        isinstance(value, Mapping)
        and SETTINGS.holds({name: one for name, one in value.items() if one is not None})
        and all(map(is_text, value))
    ),
)
SCHEMA = ValueShape("an object", lambda value: isinstance(value, Mapping))
"""A schema checks itself (:mod:`lakebed.model.schema`)."""

CLAIM = _object(
    {"sidecar": TEXT, "references": WHOLE, "partitions": WHOLE, "rows": _optional(WHOLE)}, "the claim of a sidecar"
)
IDS, TEXTS, PARTITIONS, KEYS = _listed(ID), _listed(TEXT), _listed(POSITIVE), _listed(HEX)
RANGES = _listed(_row(HEX, _optional(HEX)))
REFERENCES = ValueShape(
    "a list of references, or a claim",
    lambda value: all(map(_is_reference, value)) if type(value) is list else CLAIM.holds(value),
)
_PAIRS = _listed(_row(ID, POSITIVE))
PAIRS = ValueShape(
    "a list of file and partition, or a claim",
    lambda value: _PAIRS.holds(value) if type(value) is list else CLAIM.holds(value),
)
FILE = ValueShape("a file", _is_file)
JOB = _object(
    {
        "id": ID, "min": HEX, "max": _optional(HEX), "inputs": IDS, "owner": TEXT, "deadline_s": WHOLE,
        "began_us": WHOLE, "opened": WHOLE,
    },
    "a job",
)  # fmt: skip
_SOURCE = _row(TEXT, WHOLE, TEXT)
_SOURCES = ValueShape(
    "a list of files, one or more",
    lambda value: type(value) is list and bool(value) and all(map(_SOURCE.holds, value)),
)
REQUEST = _object(
    {
        "id": TEXT, "files": _SOURCES, "base_version": WHOLE, "submitted": WHOLE,
        "failures": WHOLE, "rejected": WHOLE, "reason": TEXT,
    },
    "a request",
)  # fmt: skip
_CUTS = {"cuts": _listed(_row(POSITIVE, KEYS)), "references": REFERENCES}
_ADDED = {"files": _listed(FILE), "references": REFERENCES}

TRANSACTIONS: Mapping[str, Mapping[str, ValueShape]] = {
    "create_table": {"table": ID, "schema": SCHEMA, "settings": SETTINGS, "boundaries": KEYS},
    "add_files": {"request_key": _optional(TEXT), "base_version": WHOLE, "requests": TEXTS, **_ADDED},
    "open_job": {"job": JOB},
    "replace": {"job": ID, "drop": PAIRS, **_ADDED},
    "close_job": {"job": ID, "reason": TEXT},
    "concatenate_runs": {"partition": POSITIVE, "files": IDS, "run": TEXT},
    "split_partitions": _CUTS,
    "join_partitions": {"partitions": PARTITIONS, "references": REFERENCES},
    "remove_range": {"ranges": RANGES, "fence": FLAG, "partitions": PARTITIONS, **_CUTS},
    "alter_settings": {"changes": CHANGES},
    "alter_schema": {"schema": SCHEMA, "changes": TEXTS},
    "retire_files": {"files": IDS},
    "purge_files": {"files": IDS},
    "raise_watermark": {"mark": TEXT, "value": WHOLE},
    "set_tag": {"name": TAG, "version": POSITIVE},
    "remove_tag": {"name": TAG},
    "submit_requests": {"requests": _listed(REQUEST), "request_watermark": WHOLE},
    "fail_request": {"request": TEXT, "reason": TEXT},
    "reject_request": {"request": TEXT, "reason": TEXT},
    "drop_table": {},
}
"""The fields of each type of transaction of a table."""

CATALOG_CHANGES: Mapping[str, Mapping[str, ValueShape]] = {
    "register_table": {"table": ID, "name": TABLE, "base_version": WHOLE, "online": _omissible(FLAG)},
    "rename_table": {"table": ID, "name": TABLE},
    "purge_table": {"table": ID},
    "set_online": {"table": ID, "online": FLAG},
    "set_defaults": {"changes": CHANGES},
    "fence_creations": {},
}
"""Those of the catalog."""

CATALOG_STATE: Mapping[str, ValueShape] = {
    "version": WHOLE,
    "tables": _listed(_row(ID, TABLE, FLAG)),
    "defaults": SETTINGS,
    "creations_from": _omissible(WHOLE),
}


def _parts(key: ValueShape) -> ValueShape:
    """Parts by their keys: named, with digest, bytes, rows, first and last key; or in base64."""
    named = _row(ID, TEXT, WHOLE, POSITIVE, key, key)
    return ValueShape(
        "a list of parts",
        lambda value: type(value) is list and all(is_text(one) or named.holds(one) for one in value),
    )


PARTS: Mapping[str, ValueShape] = {
    "files": _parts(TEXT),
    "references": _parts(WHOLE),
    "requests": _parts(TEXT),
    "open_requests": _parts(TEXT),
}
"""What a checkpoint says of its parts; the catalog's has none."""

TABLE_STATE: Mapping[str, ValueShape] = {
    "version": WHOLE,
    "table": TEXT,
    "schemas": _listed(SCHEMA),
    "settings": SETTINGS,
    "boundaries": KEYS,
    "partitions": PARTITIONS,
    "next_partition": POSITIVE,
    "parents": _listed(_row(POSITIVE, POSITIVE)),
    "jobs": _listed(JOB),
    "rejected": _listed(REQUEST),
    "next_sequence": POSITIVE,
    "tags": ValueShape(
        "an object of numbers", lambda value: isinstance(value, Mapping) and all(map(POSITIVE.holds, value.values()))
    ),
    "fences": _listed(_row(HEX, _optional(HEX), POSITIVE)),
    "earliest_retained_version": WHOLE,
    "request_watermark": WHOLE,
    "orphan_cutoff_us": WHOLE,
    "dropped": FLAG,
}
"""The document of a table's checkpoint; what there may be millions of is in its parts, which are columns."""
