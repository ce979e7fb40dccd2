"""The manifest of a checkpoint: the object that names its segments, or contains them if they are small.

Core type: :class:`Manifest`. Pure. Errors: DamagedError, UnsupportedFormatError.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from lakebed.log import entry as entries
from lakebed.log.segments import StoredSegment
from lakebed.model.documents import reading
from lakebed.model.state.checkpoint_codec import stored_segments

AnySegment = StoredSegment | bytes
"""A segment in a manifest: the name of its object, or its bytes if all segments together are small."""


class Manifest(Struct, frozen=True):
    """The version and the digest of the entry that the state is after, the state, and its segments by kind."""

    version: int
    entry_digest: str
    document: Mapping[str, Any]
    segments: Mapping[str, Sequence[AnySegment]]
    size_bytes: int

    @classmethod
    def of(
        cls,
        version: int,
        entry_digest: str,
        document: Mapping[str, Any],
        segments: Mapping[str, Sequence[AnySegment]],
        log: str,
    ) -> tuple[Manifest, bytes]:
        """Return the manifest of a checkpoint of a log, and its bytes."""
        named = {
            kind: [
                base64.b64encode(segment).decode() if isinstance(segment, bytes) else astuple(segment)
                for segment in stored
            ]
            for kind, stored in segments.items()
        }
        data = entries.encode_checkpoint(log, version, entry_digest, {"state": document, "segments": named})
        return cls(version, entry_digest, document, segments, _size(data, segments)), data

    @classmethod
    def read(cls, data: bytes, log: str) -> Manifest:
        """Return the manifest of these bytes.

        Raises DamagedError if they are not a manifest, or that of another log.
        """
        version, digest, body = entries.decode_checkpoint(data, log)
        with reading(f"the checkpoint of {log} holds no state", log=log):
            segments: dict[str, tuple[AnySegment, ...]] = {
                kind: tuple(
                    base64.b64decode(segment) if isinstance(segment, str) else StoredSegment(*segment)
                    for segment in listed
                )
                for kind, listed in stored_segments(body["segments"]).items()
            }
            return cls(version, digest, body["state"], segments, _size(data, segments))


def _size(data: bytes, segments: Mapping[str, Sequence[AnySegment]]) -> int:
    stored = [segment for kind in segments.values() for segment in kind if isinstance(segment, StoredSegment)]
    return len(data) + sum(segment.size_bytes for segment in stored)
