"""The bounds of key fields of a file that Lakebed has written, from its Parquet statistics; see
:mod:`lakebed.model.field_bounds`.

Statistics of a column of long values may be missing; then nothing is known of the field. Files of other writers are not
asked: what statistics of theirs mean depends on the writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.model.field_bounds import encode_bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.model.field_bounds import Content
    from lakebed.model.schema import Field, Schema

_MS_PER_S = 1_000


def bounds_of(metadata: Any, schema: Schema) -> bytes:
    """The stored form of the bounds of all key fields after the first; ``metadata`` is the file's, as Arrow has it."""
    return encode_bounds(_ends(metadata, schema))


def _ends(metadata: Any, schema: Schema) -> Iterator[tuple[Field, Content | None, Content | None]]:
    # Key columns come first, in the order of the fields, and none is nested.
    for index, field in list(enumerate((*schema.row_key, *schema.sort_key)))[1:]:
        chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
        known = [chunk.statistics for chunk in chunks]
        if not all(one is not None and one.has_min_max for one in known):
            yield field, None, None
        else:
            low, high = min(one.min_raw for one in known), max(one.max_raw for one in known)
            yield field, _content(field, low), _content(field, high)


def _content(field: Field, raw: Any) -> Content:
    """A raw value of the file as the field's column has it: Parquet has no seconds, and keeps them as milliseconds."""
    if not field.width:
        return raw.encode() if isinstance(raw, str) else bytes(raw)
    in_seconds = pa.types.is_timestamp(field.type) and field.type.unit == "s"
    return int(raw) // _MS_PER_S if in_seconds else int(raw)
