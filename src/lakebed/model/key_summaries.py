"""Key summaries: the exact ranks of about a thousand keys of one sorted file.

A sorted file needs no streaming sketch. While the file is written, keys at regular positions are sampled with their
exact *lower rank*, the number of rows with a smaller key. For a key with several rows its successor is sampled too; its
lower rank is the position after these rows. So there are few rows between two neighbouring samples, even beside a hot
key. The rank of any other key is between the ranks of the neighbouring samples; the estimate is their midpoint.
Summaries of several files are merged by weight to find split points: the error of a merged rank is at most the sum of
the files' widest steps (the guarantee of a quantile sketch, without randomness). A summary also has the rank of each
partition boundary that the writer had read, so the row counts of new references are exact.

Older summaries have no successors. Their bounds are wide beside a hot key, and valid.

Pure: no I/O. A summary is stored beside its file as Arrow IPC (docs/format.md).
"""

from __future__ import annotations

import base64
import itertools
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.keys import shortest_separator, successor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.model.files import DataFile

SAMPLES_MAX = 1025
"""Maximum number of sampled keys. A step between samples is at most rows / 512 (the last widening may halve their
number), and its midpoint is off by at most half of that: 0.1% of the file's rows."""


_DIGEST_MARK = b"xxh3-128:"
_NO_DIGEST = b"?" * 32


_BYTES_MAX, _DENSE = 16 * 1024 * 1024, 32
"""The decoded size of a summary is limited to a thousand keys of 8 KiB or, for a larger one with many boundaries, to a
multiple of its stored size. Consecutive keys share prefixes and compress well."""


class Summary(Struct, frozen=True):
    """Sampled keys of one sorted file in ascending order, the exact lower rank of each, and the number of rows of the
    file.

    ``max_key`` is the file's greatest key: above it every rank is ``rows``. ``blocks`` are the digests of the blocks of
    a file that lacks them because another program wrote it (:mod:`lakebed.storage.blocks`).
    """

    keys: tuple[bytes, ...]
    ranks: tuple[int, ...]
    rows: int
    max_key: bytes
    blocks: bytes = b""

    @property
    def ascends(self) -> bool:
        """Whether keys and ranks ascend as required: checked for a summary received from elsewhere."""
        ranks = all(low <= high for low, high in itertools.pairwise((0, *self.ranks, self.rows)))
        keys = all(low < high for low, high in itertools.pairwise(self.keys))
        return len(self.keys) == len(self.ranks) and ranks and keys

    def bounds(self, key: bytes) -> tuple[int, int]:
        """Return the least and the greatest possible number of rows with a smaller key; equal if it is exact."""
        if key > self.max_key:
            return self.rows, self.rows
        position = bisect_left(self.keys, key)
        if position < len(self.keys) and self.keys[position] == key:
            return self.ranks[position], self.ranks[position]
        low = self.ranks[position - 1] if position else 0
        # No row is below the first sample, the least key of the file.
        high = (self.ranks[position] if position < len(self.ranks) else self.rows) if position else 0
        return low, high

    def rank(self, key: bytes) -> tuple[int, bool]:
        """Return the number of rows with a smaller key, and whether it is exact."""
        low, high = self.bounds(key)
        # Rounded up: the lower of two samples is usually itself a row.
        return (low + high + 1) // 2, low == high

    def with_ranks(self, ranks: Mapping[bytes, int]) -> Summary:
        """Return the summary with the exact lower ranks of further keys, as read from the file.

        Raises DamagedError if a rank is not between the neighbouring ranks.
        """
        for key, rank in ranks.items():
            low, high = self.bounds(key)
            if not low <= rank <= high:
                raise Code.SUMMARY_DAMAGED(
                    f"{rank} rows of a file have a key below {key.hex()}, but its summary says {low} to {high}; delete "
                    "the summary, which is made again, and run a deep verification of the table"
                )
        inside = {key: rank for key, rank in ranks.items() if key <= self.max_key}
        noted = sorted({**dict(zip(self.keys, self.ranks, strict=True)), **inside}.items())
        return replace(self, keys=tuple(key for key, _ in noted), ranks=tuple(rank for _, rank in noted))

    def spread(self) -> tuple[bytes, ...]:
        """Return sampled keys in ascending order, spread evenly over the rows; a key with many rows is repeated."""
        count = min(self.rows, SAMPLES_MAX)
        ranks = (number * self.rows // count for number in range(count))
        return tuple(self.keys[bisect_right(self.ranks, rank) - 1] for rank in ranks)

    def to_ipc(self) -> bytes:
        """Return the stored form: Arrow IPC file, columns ``key`` (binary) and ``rank`` (int64), rows in the metadata.

        The metadata also has the digest of the stored bytes, computed with a placeholder in its place.
        """
        import pyarrow as pa

        schema = pa.schema(
            [("key", pa.binary()), ("rank", pa.int64())],
            metadata={
                "lakebed.rows": str(self.rows),
                "lakebed.max_key": self.max_key.hex(),
                "lakebed.digest": (_DIGEST_MARK + _NO_DIGEST).decode(),
                **({"lakebed.block_digests": base64.b64encode(self.blocks)} if self.blocks else {}),
            },
        )
        table = pa.table([pa.array(self.keys, pa.binary()), pa.array(self.ranks, pa.int64())], schema=schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        data = bytes(sink.getvalue())
        return data.replace(_DIGEST_MARK + _NO_DIGEST, _DIGEST_MARK + _digest(data))

    @classmethod
    def of(cls, file: DataFile, data: bytes, name: str) -> Summary:
        """Verify and decode the stored form of a file's summary.

        Raises as :meth:`from_ipc`, and if it is that of another file, as far as rows, least and greatest key show it.
        """
        found = cls.from_ipc(data, name)
        if (found.rows, found.keys[:1], found.max_key) != (file.rows, (file.min_key,), file.max_key):
            raise Code.SUMMARY_DAMAGED(
                f"{name} is the summary of another file; delete it to have it made again", name=name
            )
        return found

    @classmethod
    def from_ipc(cls, data: bytes, name: str) -> Summary:
        """Verify and decode the stored form of any summary.

        Raises DamagedError, which names the object, if it is altered, not a summary, or its ranks do not ascend.
        """
        import pyarrow as pa

        from lakebed.model.ipc import open_within

        _, mark, rest = data.partition(_DIGEST_MARK)
        stored = rest[: len(_NO_DIGEST)]
        # These bytes are also decoded: a key may contain the placeholder, which the writer replaced too.
        content = data.replace(mark + stored, mark + _NO_DIGEST) if mark else b""
        if not mark or _digest(content) != stored:
            raise Code.SUMMARY_DAMAGED(
                f"{name} is damaged: its digest differs; delete it to have it made again", name=name
            )
        try:
            table = open_within(pa.BufferReader(content), _BYTES_MAX + _DENSE * len(content), name).read_all()
            metadata = table.schema.metadata or {}
            found = cls(
                tuple(table.column("key").to_pylist()),
                tuple(table.column("rank").to_pylist()),
                int(metadata[b"lakebed.rows"]),
                bytes.fromhex(metadata[b"lakebed.max_key"].decode()),
                base64.b64decode(metadata.get(b"lakebed.block_digests", b"")),
            )
        except (pa.ArrowException, KeyError, ValueError, OSError, SystemError) as error:
            raise Code.SUMMARY_DAMAGED(
                f"{name} is not a summary; delete it to have it made again", name=name
            ) from error
        if not found.ascends:
            raise Code.SUMMARY_DAMAGED(
                f"{name}: keys and ranks do not ascend; delete it to have it made again", name=name
            )
        return found


def _digest(data: bytes) -> bytes:
    import xxhash

    return xxhash.xxh3_128_hexdigest(data).encode()


def shares(summary: Summary, boundaries: Sequence[bytes]) -> list[tuple[int, bool]]:
    """Return the rows of the file in each interval between the ascending boundaries, and whether each count is exact.

    There is one more interval than boundaries; the counts sum to the file's rows.
    """
    ranks = [(0, True), *(summary.rank(boundary) for boundary in boundaries), (summary.rows, True)]
    return [(b - a, x and y) for (a, x), (b, y) in itertools.pairwise(ranks)]


def merged_rank(summaries: Sequence[Summary], key: bytes) -> int:
    """Estimate the number of rows with a smaller key over all the files from their summaries."""
    return sum(summary.rank(key)[0] for summary in summaries)


def candidates(summaries: Sequence[Summary], low: bytes, high: bytes | None) -> list[bytes]:
    """Return sampled keys in ``(low, high)``, ascending and distinct, that may have rows on both sides.

    A cut at the least key would leave no row below it; one after the last rows would leave none above.
    """
    noted = sorted({key for s in summaries for key in s.keys if key > low and (high is None or key < high)})
    first = min((s.keys[bisect_left(s.keys, low)] for s in summaries if s.keys and s.keys[-1] >= low), default=b"")
    noted = [key for key in noted if key > first]
    rows = _rows_below(summaries, high)
    while noted and merged_rank(summaries, noted[-1]) >= rows:
        noted.pop()
    return noted


def separator(noted: Sequence[bytes], position: int, rows_between: float, rows_few: float) -> bytes:
    """Return a short key that separates the sample before a position from the rows after it.

    A sample that is the successor of a hot key is as long as a key, and so would be the separator. If the
    ``rows_between`` it and the next sample are at most ``rows_few``, any key up to the next one may be used.
    """
    below, at = noted[position - 1 : position + 1]
    if at == successor(below) and position + 1 < len(noted) and rows_between <= rows_few:
        at = noted[position + 1]
    return shortest_separator(below, at)


def even_cuts(summaries: Sequence[Summary], count: int, low: bytes = b"", high: bytes | None = None) -> list[bytes]:
    """Return at most ``count - 1`` ascending keys that cut the rows in ``[low, high)`` into about equal parts."""
    noted = candidates(summaries, low, high)
    if count < 2 or not noted:
        return []
    base = merged_rank(summaries, low)
    total = _rows_below(summaries, high) - base
    cuts: list[bytes] = []
    for part in range(1, count):
        wanted = base + total * part / count
        # Binary search, because the rank of each sample costs a search in every summary.
        position = bisect_left(noted, wanted, key=lambda key: merged_rank(summaries, key))
        position = min(position, len(noted) - 1)
        if position:
            below, at = (merged_rank(summaries, noted[p]) for p in (position - 1, position))
            position -= wanted - below < at - wanted
        key = noted[position]
        if not cuts or key > cuts[-1]:
            cuts.append(key)
    return cuts


def error_rows(summaries: Sequence[Summary]) -> int:
    """Return the maximum error of a merged rank, in rows."""
    found = 0
    for summary in summaries:
        noted = zip(summary.keys, summary.ranks, strict=True)
        steps = itertools.pairwise((*noted, (summary.max_key, summary.rows)))
        # No key lies between a key and its successor.
        found += max((b - a for (low, a), (high, b) in steps if high not in (low, successor(low))), default=0)
    return found


def _rows_below(summaries: Sequence[Summary], high: bytes | None) -> int:
    return sum(s.rows for s in summaries) if high is None else merged_rank(summaries, high)
