"""The rows of the benchmark, all derived from their numbers, and what a table of them must add up to.

A row takes 40 bytes: a key of 8, a version of 8, and a text of 24 hexadecimal digits that follows from key and version,
so that each row read anywhere says whether it is whole. Row ``i`` has key ``mix(i)``: distinct, and in random order.
Version 0 was imported. Batch ``b`` of writer ``w`` of ``n`` holds version ``b + 1`` of random rows ``i`` with
``i % n == w``: no two writers upsert the same row, so the newest version of a row follows from the ledgers.

A table of the right rows and one with any lost, doubled, old or damaged row differ in :class:`Sums`, apart from a
chance of 2⁻⁶⁴: by 256 ranges of keys, it has the number of rows, the sum of versions, and the sum of a hash of key and
version modulo 2⁶⁴. They are computed in the memory of a chunk, plus some 40 bytes for each upserted row.

Core types: :class:`Workload`, :class:`Sums`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed

SCHEMA = lakebed.Schema({"key": "int64"}, values={"version": "int64", "text": "string"})
ROW_BYTES = 8 + 8 + 24
BUCKETS = 256
CHUNK = 1 << 20
"""Rows that are summed at once: the sum of so many numbers of 32 bits is exact as a float of 53."""

Words = npt.NDArray[np.uint64]

_DIGITS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.dtype("<u2"))
"""The two hexadecimal digits of each byte, as one number of 16 bits."""


def mix(words: Words) -> Words:
    """Return a bijection of 64 bits that looks random (the finalizer of SplitMix64)."""
    mixed = words + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def keys_of(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the keys of rows."""
    return mix(numbers.astype(np.uint64)).view(np.int64)


def hashes_of(keys: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]) -> Words:
    """Return the hash of each key and version."""
    return mix(keys.view(np.uint64) ^ mix(versions.view(np.uint64)))


def texts_of(keys: npt.NDArray[np.int64], versions: npt.NDArray[np.int64]) -> pa.Array:
    """Return the texts of rows, of 24 digits each."""
    hashes = hashes_of(keys, versions)
    raw = np.empty((len(keys), 12), np.uint8)
    raw[:, :8] = hashes.view(np.uint8).reshape(-1, 8)
    raw[:, 8:] = mix(hashes).view(np.uint8).reshape(-1, 8)[:, :4]
    offsets = np.arange(len(keys) + 1, dtype=np.int32) * 24
    return pa.StringArray.from_buffers(len(keys), pa.py_buffer(offsets), pa.py_buffer(_DIGITS[raw].tobytes()))


def rows_of(numbers: npt.NDArray[np.int64], version: int) -> pa.Table:
    """Return these rows in one version, in the order of the numbers."""
    keys = keys_of(numbers)
    versions = np.full(len(keys), version, np.int64)
    return pa.table({"key": keys, "version": versions, "text": texts_of(keys, versions)})


@dataclass(slots=True)
class Sums:
    """What rows add up to, by the first byte of their keys."""

    counts: npt.NDArray[np.int64]
    versions: npt.NDArray[np.int64]
    hashes: Words

    @classmethod
    def none(cls) -> Sums:
        """Return those of no row."""
        return cls(np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.uint64))

    def add(self, keys: npt.NDArray[np.int64], versions: npt.NDArray[np.int64], sign: int = 1) -> None:
        """Add rows, or take them away by the sign -1."""
        for begin in range(0, len(keys), CHUNK):
            part, version = keys[begin : begin + CHUNK], versions[begin : begin + CHUNK]
            buckets = (part.view(np.uint64) >> np.uint64(56)).astype(np.intp)
            hashes = hashes_of(part, version)
            low = _summed(buckets, hashes & np.uint64(0xFFFFFFFF))
            high = _summed(buckets, hashes >> np.uint64(32))
            hashed = low.astype(np.uint64) + (high.astype(np.uint64) << np.uint64(32))
            self.counts += sign * np.bincount(buckets, minlength=BUCKETS)
            self.versions += sign * _summed(buckets, version).astype(np.int64)
            self.hashes = self.hashes + hashed if sign > 0 else self.hashes - hashed

    def differences(self, other: Sums) -> list[str]:
        """Return a line for each bucket in which these differ from the others."""
        return [
            f"keys from {bucket:02x}…: {self.counts[bucket]:,} rows, not {other.counts[bucket]:,}; sum of versions "
            f"{self.versions[bucket]:,}, not {other.versions[bucket]:,}"
            + ("" if self.hashes[bucket] == other.hashes[bucket] else "; other rows")
            for bucket in range(BUCKETS)
            if (self.counts[bucket], self.versions[bucket], self.hashes[bucket])
            != (other.counts[bucket], other.versions[bucket], other.hashes[bucket])
        ]


def _summed(
    buckets: npt.NDArray[np.intp], values: npt.NDArray[np.uint64] | npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    return np.bincount(buckets, weights=values, minlength=BUCKETS)


@dataclass(frozen=True, slots=True)
class Workload:
    """How many rows there are, and who upserts which of them."""

    rows: int
    writers: int
    batch_rows: int
    seed: int = 1

    def imported(self, begin: int, end: int) -> Iterator[pa.Table]:
        """Return rows ``[begin, end)`` as they are imported, in chunks."""
        for first in range(begin, end, CHUNK):
            yield rows_of(np.arange(first, min(end, first + CHUNK)), 0)

    def numbers(self, writer: int, batch: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the rows in a batch, each once, ascending."""
        own = (self.rows - writer + self.writers - 1) // self.writers
        drawn = np.random.default_rng([self.seed, writer, batch]).integers(0, own, self.batch_rows)
        return np.unique(drawn) * self.writers + writer

    def batch(self, writer: int, batch: int) -> pa.Table:
        """Return the rows of a batch."""
        return rows_of(self.numbers(writer, batch), batch + 1)

    def expected(self, batches: dict[int, int]) -> Sums:
        """Return the sums of the table after the first so many batches of each writer."""
        sums = Sums.none()
        for begin in range(0, self.rows, CHUNK):
            keys = keys_of(np.arange(begin, min(self.rows, begin + CHUNK)))
            sums.add(keys, np.zeros(len(keys), np.int64))
        for writer, count in batches.items():
            if count:
                numbers, versions = self._newest(writer, count)
                keys = keys_of(numbers)
                sums.add(keys, np.zeros(len(keys), np.int64), -1)
                sums.add(keys, versions)
        return sums

    def _newest(self, writer: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        parts = [self.numbers(writer, batch) for batch in reversed(range(count))]
        versions = np.repeat(np.arange(count, 0, -1), [len(part) for part in parts])
        # Of equal numbers, the index of the first is returned: that of the newest batch.
        numbers, first = np.unique(np.concatenate(parts), return_index=True)
        return numbers, versions[first]


def make_file(workload: Workload, path: Path, begin: int, end: int) -> None:
    """Write rows as a Parquet file, unsorted."""
    with pq.ParquetWriter(path, SCHEMA.arrow, compression="zstd") as writer:
        for rows in workload.imported(begin, end):
            writer.write_table(rows.cast(SCHEMA.arrow))


def stored(batches: Iterable[pa.RecordBatch]) -> Sums:
    """Return the sums of rows that were read in key order.

    Raises ValueError for a key that does not follow the one before it, which a doubled row would have, and for a text
    that is not that of its key and version.
    """
    sums, last = Sums.none(), None
    for batch in batches:
        if not batch.num_rows:
            continue
        keys, versions = batch["key"].to_numpy(), batch["version"].to_numpy()
        if (last is not None and keys[0] <= last) or (keys[1:] <= keys[:-1]).any():
            raise ValueError(f"keys do not ascend after {last} in {keys[0]} … {keys[-1]}: a key is there twice")
        if not batch["text"].cast(pa.string()).equals(texts_of(keys, versions)):
            raise ValueError(f"a text between keys {keys[0]} and {keys[-1]} is not that of its key and version")
        last = keys[-1]
        sums.add(keys, versions)
    return sums
