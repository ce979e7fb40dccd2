"""Searches encoded keys, as log entries, checkpoints and summaries hold them, for the keys of wanted rows.

A key value may itself be personal data. Files, partitions and jobs are bounded by keys, so logs and checkpoints
hold keys of rows, as long as they are kept: the least and the greatest key of each file, partition boundaries
(shortened to what separates two keys), and the ranges of removals. Of key fields after the first, and sort keys, the
state holds the least and the greatest value of each file, cut to 16 bytes.

A predicate that names only row key columns is evaluated on the decoded keys. A shortened key is compared as it is: the
original name of a boundary ``"smi"`` is unknown.

Core type: :class:`KeySearch`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakebed.model.field_bounds import decode_bounds
from lakebed.model.files import DataFile
from lakebed.model.keys import KeyCodec
from lakebed.upkeep.retention.erasure.plan import contained

if TYPE_CHECKING:
    from lakebed.engine.predicate import Predicate
    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Field, Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.upkeep.retention.erasure.search import Wanted

BATCH = 65_536


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The wanted keys: those inside the ranges for which the predicate, over row key columns, is true."""

    schema: Schema
    predicate: Predicate | None
    ranges: tuple[EncodedRange, ...]

    @classmethod
    def of(cls, wanted: Wanted, predicate: Predicate | None) -> KeySearch | None:
        """Return the search for the keys of wanted rows; None if they cannot be identified by keys alone."""
        if predicate is not None and not set(predicate.columns) <= set(wanted.schema.row_key_names):
            return None
        return cls(wanted.schema, predicate, wanted.ranges)

    def count(self, keys: Iterable[bytes]) -> int:
        """Return the number of different wanted keys among these."""
        every = sorted({key for key in keys if key})
        inside = [key for key, yes in zip(every, contained(every, self.ranges), strict=True) if yes]
        if self.predicate is None or not inside:
            return len(inside)
        found = 0
        for start in range(0, len(inside), BATCH):
            some = [self.schema.codec.decode_bound(key).values for key in inside[start : start + BATCH]]
            found += self._true(self.schema.row_key, some)
        return found

    def count_bounds(self, files: Iterable[DataFile]) -> int:
        """Return the number of wanted bounds of single key fields of these files, by a predicate on one such field."""
        if self.predicate is None or len(self.predicate.columns) != 1:
            return 0
        later = (*self.schema.row_key[1:], *self.schema.sort_key)
        index = next((i for i, f in enumerate(later) if f.name == self.predicate.columns[0]), None)
        if index is None:
            return 0
        codec, values = KeyCodec((later[index],)), set()
        for file in files:
            bounds = decode_bounds(file.bounds)
            if index < len(bounds):
                ends = (bounds[index].min, bounds[index].max)
                values |= {codec.decode_bound(end).values for end in ends if end}
        return self._true((later[index],), sorted(values)) if values else 0

    def _true(self, key: Sequence[Field], values: Sequence[tuple[Any, ...]]) -> int:
        import pyarrow.compute as pc

        from lakebed.engine.predicate import is_true

        assert self.predicate is not None
        columns = {
            field.name: field.key_type.array([one[index] if index < len(one) else None for one in values])
            for index, field in enumerate(key)
        }
        for name in self.predicate.columns:
            columns.setdefault(name, pa.nulls(len(values), self.schema.by_name[name].stored_type))
        return int(pc.sum(is_true(pa.RecordBatch.from_pydict(columns), self.predicate)).as_py() or 0)


def keys_in(value: Any) -> Iterator[bytes | DataFile]:
    """Return the encoded keys in a transaction or a part of one, and its data files, which have bounds as well."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, DataFile):
        yield value
        yield from (value.min_key, value.max_key)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from keys_in(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from keys_in(one)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from keys_in(getattr(value, name))
    elif is_dataclass(value):
        for one in fields(value):
            yield from keys_in(getattr(value, one.name))


def keys_of_state(state: TableState) -> Iterator[bytes | DataFile]:
    """Return the encoded keys in a table state, as :func:`keys_in`."""
    yield from state.partitions.boundaries
    for partition in state.partitions.ids:
        yield from keys_in(state.files_of(partition))
    for committed in state.files.having("dropped"):
        yield from keys_in(committed.facts)
    yield from keys_in(tuple(state.jobs.values()))
    yield from keys_in(state.fences)


def counted(search: KeySearch, found: Iterable[bytes | DataFile]) -> int:
    """Return the number of wanted keys and bounds."""
    every = list(found)
    keys = search.count(one for one in every if isinstance(one, bytes))
    return keys + search.count_bounds(one for one in every if isinstance(one, DataFile))
