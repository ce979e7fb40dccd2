"""How long, how large and how many: the limits of a log, in one value that its parts share.

Core type: :class:`LogLimits`. Each :class:`~lakebed.log.log.Log` has one.
"""

from __future__ import annotations

from datetime import timedelta

from msgspec import Struct

from lakebed.model.state.columns import SEGMENT_BYTES
from lakebed.model.state.reference_lists import INLINE_MAX


class LogLimits(Struct, frozen=True):
    """The limits of one log in this process; they bound time and memory, and no correctness depends on them."""

    losing_s: float = 15.0
    """The time after which a commit that keeps losing races gives up."""

    fresh_s: float = 600.0
    """A writer that has not read the log for longer reads it before it appends. Not needed for correctness. It makes it
    unlikely that a writer appends to a truncated part of the log and cannot learn its outcome."""

    last_modified_pause_s: float = 0.1
    """An entry that follows another within this time carries no last-modified time if that costs a request, which would
    double the time of the commit."""

    turn_wait_s: float = 2.0
    """How long a writer waits for its turn. One takes a few milliseconds, or 50 on a busy disk."""

    look_s: float = 600.0
    """After this time a process asks again what is around the end of the log, if that takes a request."""

    settle_puts: int = 12
    """Puts of the same bytes before an unclear outcome is called unknown: about ten seconds with the pauses between."""

    queue_max: int = 4096
    """Callers that wait at a time: sixteen groups, so half a second where an entry takes 30 ms."""

    entry_bytes: int = 4 * 2**20
    """The lines of one entry, if they are several: sent in one request, and held in memory by each reader."""

    entry_references: int = 250_000
    """References in the sidecars of one entry, if it is more than one transaction: a second's work to apply."""

    line_bytes: int = 16 * 2**20
    """One transaction: some forty thousand files. Its references are beside it."""

    ahead_bytes: int = 64 * 2**20
    """Bytes of unpublished entries that are kept, to be applied to a head that is based on a newer checkpoint."""

    inline_bytes: int = 128 * 1024
    """Segments of at most this total size lie in the manifest, so that a small table opens with one request."""

    segment_bytes: int = SEGMENT_BYTES
    """Bytes of a segment of a checkpoint."""

    inline_references: int = INLINE_MAX
    """References of one list that lie in the line of a transaction; more are in a sidecar."""

    segment_age: timedelta = timedelta(days=1)
    """The greatest age from which a segment that no manifest names is deleted. A younger one may await its manifest."""


LIMITS = LogLimits()
