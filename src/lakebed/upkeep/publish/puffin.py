"""Deletion vectors: a Puffin file with a roaring bitmap of positions for each data file.

PyIceberg reads such files, and does not write them. Pure: no I/O. Errors: DamagedError. Source: the specification of
Puffin (``deletion-vector-v1`` blob type).
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

from pyiceberg.table.puffin import MAGIC_BYTES, PuffinFile
from pyroaring import BitMap64

from lakebed.errors import Code
from lakebed.model.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROW_POSITION_ID = 2147483645
"""The reserved id of the column ``_pos`` of a data file, over which a deletion vector is."""

_VECTOR, _VECTOR_MAGIC = "deletion-vector-v1", bytes.fromhex("d1d33964")
_REFERENCED, _CARDINALITY = "referenced-data-file", "cardinality"
_WORD = 4


def deletion_vectors(hidden: Mapping[str, BitMap64]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Return a Puffin file with a vector for each data file, and the byte range of each, offset and length."""
    content, blobs = bytearray(MAGIC_BYTES), []
    ranges: dict[str, tuple[int, int]] = {}
    for path, positions in sorted(hidden.items()):
        blob = _blob(positions)
        ranges[path] = (len(content), len(blob))
        blobs.append(
            {
                "type": _VECTOR,
                "fields": [_ROW_POSITION_ID],
                # As the specification asks: they are those of the snapshot that adds the entry.
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": {_REFERENCED: path, _CARDINALITY: str(len(positions))},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": f"lakebed {VERSION}"}}).encode()
    content += MAGIC_BYTES + footer + len(footer).to_bytes(_WORD, "little") + bytes(_WORD) + MAGIC_BYTES
    return bytes(content), ranges


def _blob(positions: BitMap64) -> bytes:
    """Return a deletion vector: its length, the magic, a 64-bit roaring bitmap in the portable form, a CRC-32."""
    compact = positions.copy()
    compact.run_optimize()
    vector = _VECTOR_MAGIC + compact.serialize()
    return len(vector).to_bytes(_WORD, "big") + vector + zlib.crc32(vector).to_bytes(_WORD, "big")


def read_deletion_vectors(data: bytes) -> dict[str, BitMap64]:
    """Return the positions by the paths of data files. Raises DamagedError if a vector is damaged."""
    try:
        puffin = PuffinFile(data)
        return {one.properties[_REFERENCED]: _positions(puffin.get_blob_payload(one)) for one in puffin.footer.blobs}
    except (ValueError, KeyError, IndexError) as error:
        raise Code.OBJECT_DAMAGED("an object with deletion vectors is damaged; publish the table anew") from error


def _positions(blob: bytes) -> BitMap64:
    vector = blob[_WORD:-_WORD]
    length, checksum = blob[:_WORD], blob[-_WORD:]
    if (
        int.from_bytes(length, "big") != len(vector)
        or not vector.startswith(_VECTOR_MAGIC)
        or int.from_bytes(checksum, "big") != zlib.crc32(vector)
    ):
        raise Code.OBJECT_DAMAGED("a deletion vector is damaged: its checksum differs; publish the table anew")
    return BitMap64.deserialize(vector[len(_VECTOR_MAGIC) :])
