"""Finds the parts that need no merge: successive row groups of one file, whose keys lie in no other input.

Runs of keys that grow with time overlap little, so most of their rows would be decoded, compared with nothing and
encoded again. Such row groups are copied instead (:mod:`lakebed.files.parquet.group_copy`), and only the ranges
between them are merged. A copy takes about a tenth of the work of a merge.

Rules:

* Only files that Lakebed wrote with exactly the columns of the schema are copied from.
* A key's rows lie all in one stretch, or all outside: a range of keys that is merged must not miss or repeat them.
* A stretch has at least an eighth of ``file_bytes``: it becomes a file of its own, and many small files would be worse
  than the work that they save.
* An input is taken to have keys anywhere between its first and its last, so that only one footer of each is read.

Core: :func:`stretches`, :func:`gaps`. Reads inputs, writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from lakebed.files.parquet.group_copy import copyable, last_key
from lakebed.files.sorting.merge_inputs import MergeInput, first_keys
from lakebed.model.keys import ALL_KEYS, EncodedRange, successor

if TYPE_CHECKING:
    from lakebed.files.parquet.footer import Footer
    from lakebed.files.parquet.layout import Layout
    from lakebed.model.schema import Schema

_COPIED_SHARE = 8
"""The least size of a stretch, as a fraction of ``file_bytes``; the planner concatenates runs of such files."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Successive row groups of an input, with all rows of the merge whose keys are in ``keys``."""

    item: MergeInput
    groups: range
    keys: EncodedRange


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group with its first key. Its rows have keys in ``keys``, which is wider where the end is not known."""

    index: int
    size_bytes: int
    first: bytes
    keys: EncodedRange


def stretches(inputs: Sequence[MergeInput], layout: Layout, key_range: EncodedRange | None) -> list[Stretch]:
    """Return the parts to copy in a merge of all rows in the key range, in key order; none if too little would be
    saved.

    Raises DamagedError for a footer that cannot be read, Error for row groups out of order.
    """
    bytes_min = max(1, layout.file_bytes // _COPIED_SHARE)
    present = [item for item in inputs if item.rows]
    if any(item.is_arrow for item in present) or all(item.file_bytes < bytes_min for item in present):
        return []
    footers = [copyable(item.path, layout.schema) for item in present]
    if None in footers:
        return []
    every = [_groups(item, layout.schema, footer) for item, footer in zip(present, footers, strict=True) if footer]
    bounds = [EncodedRange(groups[0].first, groups[-1].keys.max) for groups in every]
    parts: list[Stretch] = []
    for index, item in enumerate(present):
        if item.file_bytes < bytes_min or item.is_wide:
            continue
        others = [*bounds[:index], *bounds[index + 1 :]]
        alone = _alone(every[index], key_range or ALL_KEYS, others)
        parts += _of_input(item, every[index], alone, schema=layout.schema, bytes_min=bytes_min)
    return sorted(parts, key=lambda stretch: stretch.keys.min)


def gaps(found: Sequence[Stretch], key_range: EncodedRange | None) -> Iterator[EncodedRange]:
    """Return the ranges of keys before, between and behind the stretches, one more than those; some may be empty."""
    whole = key_range or ALL_KEYS
    begin: bytes | None = whole.min
    for stretch in found:
        assert begin is not None
        yield EncodedRange(begin, stretch.keys.min)
        begin = stretch.keys.max
    yield EncodedRange(b"", b"") if begin is None else EncodedRange(begin, whole.max)


def _alone(groups: Sequence[_Group], key_range: EncodedRange, others: Sequence[EncodedRange]) -> list[bool]:
    """Return for each row group whether it lies in the key range, and outside the bounds of the other inputs."""
    return [
        key_range.covers(group.keys) and all(other.intersect(group.keys).empty for other in others) for group in groups
    ]


def _of_input(
    item: MergeInput, groups: Sequence[_Group], alone: Sequence[bool], *, schema: Schema, bytes_min: int
) -> Iterator[Stretch]:
    """Return the stretches of row groups of one input that are ``alone``, of at least ``bytes_min``."""
    for free, members in groupby(range(len(groups)), key=alone.__getitem__):
        indices = list(members)
        if not free or sum(groups[index].size_bytes for index in indices) < bytes_min:
            continue
        low, high = indices[0], indices[-1] + 1
        # A key may have rows on both sides of a border between row groups.
        while low < high and low and last_key(item.path, groups[low - 1].index, schema) == groups[low].first:
            low += 1
        while low < high < len(groups) and last_key(item.path, groups[high - 1].index, schema) == groups[high].first:
            high -= 1
        if sum(group.size_bytes for group in groups[low:high]) >= bytes_min:
            keys = EncodedRange(groups[low].first, successor(last_key(item.path, groups[high - 1].index, schema)))
            yield Stretch(item, range(groups[low].index, groups[high - 1].index + 1), keys)


def _groups(item: MergeInput, schema: Schema, footer: Footer) -> list[_Group]:
    """Return the row groups, each up to the first key of the next, and the last up to its upper bound."""
    firsts = first_keys(item, schema)
    # Long keys, and floats with NaN, have no bounds in the footer.
    last = None if footer.groups[-1].keys.max is not None else last_key(item.path, firsts[-1][0].group, schema)
    end = footer.groups[-1].keys.max if last is None else successor(last)
    ends = [*(successor(first) for _, first in firsts[1:]), end]
    return [
        _Group(span.group, span.file_bytes, first, EncodedRange(first, above))
        for (span, first), above in zip(firsts, ends, strict=True)
    ]
