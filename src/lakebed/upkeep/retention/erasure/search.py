"""Searches one object for rows: the task of an erasure report.

Data files of tables, and files of their exports as Parquet, are read by field id. Files of others (quarantines, sources
of requests, CSV and JSON) are read by the names of columns, and their values are converted to the table's types; rows
for which that is not possible cannot be judged, and are counted separately.

Core types: :class:`Wanted` (which rows), :class:`SearchTask`, :class:`SearchedObject`.

Rules. Every byte is read and, if its digest is known, verified. Memory is bounded by batches. Errors: those of the
store; DamagedError and others for an object that cannot be read, which the report lists.

*Searches encoded keys, as log entries, checkpoints and summaries hold them, for the keys of wanted rows.*

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
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakebed.errors import Code, Error
from lakebed.model.files import DataFile, decode_bounds
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyCodec
from lakebed.model.schema import Schema
from lakebed.model.state.table_state import Source
from lakebed.storage import connect
from lakebed.upkeep.retention.erasure.plan import contained
from lakebed.write.sources import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from lakebed.engine.predicate import Predicate
    from lakebed.model.schema import Field
    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Storage

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


CSV_BLOCK_BYTES = 1 << 20
JSON_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """The rows that are searched: those with a key in one of the ranges for which the predicate is true (None: all)."""

    schema: Schema
    where: str | None
    ranges: tuple[EncodedRange, ...]

    def predicate(self) -> Predicate | None:
        """Return the checked predicate. Raises UsageError."""
        from lakebed.engine.predicate import check_where

        return None if self.where is None else check_where(self.where, self.schema.arrow)

    def narrow(self, predicate: Predicate | None) -> Schema:
        """Return the schema with the columns that decide: the keys, and those that the predicate names."""
        used = () if predicate is None else predicate.columns
        values = tuple(f for f in self.schema.values if f.name in used)
        return Schema(_plain(self.schema.row_key), _plain(self.schema.sort_key), values, version=self.schema.version)


@dataclass(frozen=True, slots=True)
class SearchTask:
    """Search one object: ``name`` in the store of the instance, or below the URL ``root``; or the user's ``source``.

    ``by_id`` says that columns are found by their field ids. ``summary`` is the object of the file's summary, whose
    keys are searched as well if the predicate names only key columns. ``rows`` is about how many rows it has.
    """

    name: str
    wanted: Wanted
    memory_limit_bytes: int
    by_id: bool = True
    digest: str | None = None
    live: tuple[EncodedRange, ...] = ()
    root: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    source: Source | None = None
    summary: str | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class SearchedObject:
    """What was found: ``rows`` that are wanted, ``live_rows`` of them in the latest version of the table.

    ``unclear_rows`` lack a value of the right type, so they may be wanted. ``summary_keys`` are keys of the summary.
    """

    rows: int = 0
    live_rows: int = 0
    unclear_rows: int = 0
    summary_keys: int = 0


def run_search_task(task: SearchTask, storage: Storage, scratch: Path) -> SearchedObject:
    """Fetch, verify and read one object. Raises the error of an object that cannot be read."""
    predicate = task.wanted.predicate()
    narrow = task.wanted.narrow(predicate)
    if task.source is not None:
        return _loose(read_rows(task.source, home=storage), narrow, predicate, task.wanted.ranges)
    store = storage if task.root is None else connect(task.root, task.options)
    with store.fetch(task.name, digest=task.digest) as path:
        if not task.by_id:
            return _loose(_read_loose(path, task.name), narrow, predicate, task.wanted.ranges)
        from lakebed.files.sorting.merge import merge_stream

        rows = live_rows = 0
        for batch in merge_stream(
            [path],
            narrow,
            key_range=None,
            where=predicate,
            memory_limit_bytes=task.memory_limit_bytes,
            scratch=scratch,
        ):
            found, live = _count_wanted(batch, narrow, task.wanted.ranges, task.live)
            rows, live_rows = rows + found, live_rows + live
    return SearchedObject(rows, live_rows, summary_keys=_summary_keys(task, storage, predicate))


def _count_wanted(
    rows: pa.RecordBatch, schema: Schema, ranges: tuple[EncodedRange, ...], live: tuple[EncodedRange, ...]
) -> tuple[int, int]:
    if ranges == (ALL_KEYS,) and live in ((), (ALL_KEYS,)):
        return rows.num_rows, rows.num_rows if live else 0
    keys: list[bytes] = schema.codec.encode_columns(rows).to_pylist()
    wanted, alive = contained(keys, ranges), contained(keys, live)
    return sum(wanted), sum(one and other for one, other in zip(wanted, alive, strict=True))


def _summary_keys(task: SearchTask, storage: Storage, predicate: Predicate | None) -> int:
    from lakebed.model.key_summaries import Summary

    search = KeySearch.of(task.wanted, predicate)
    data = None if task.summary is None or search is None else storage.get(task.summary)
    if data is None or search is None or task.summary is None:
        return 0
    summary = Summary.from_ipc(data, task.summary)
    return search.count([*summary.keys, summary.max_key])


# -- files of others ------------------------------------------------------------------------------------------------


def _plain(fields: Any) -> Any:
    """Return the fields as columns of files: none is generated."""
    from dataclasses import replace

    return tuple(replace(f, expression="", inputs=()) for f in fields)


def _read_loose(path: Path, name: str) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file by its ending, with the columns that it has."""
    ending = name.rpartition(".")[2].lower()
    if ending in ("parquet", "parq", "pq"):
        yield from _parquet(path, name)
    elif ending == "csv":
        yield from _csv(path)
    elif ending in ("json", "ndjson", "jsonl"):
        yield from _json(path)
    else:
        raise Code.SOURCE_UNSUPPORTED(
            f"{name} is no Parquet, CSV or JSON file by its ending: look at it, or delete it", name=name
        )


def _parquet(path: Path, name: str) -> Iterator[pa.RecordBatch]:
    from lakebed.files.parquet.row_groups import read_row_groups
    from lakebed.write.sources import plain

    with ExitStack() as opened:
        try:
            source = opened.enter_context(pa.OSFile(str(path)))
            yield from map(plain, read_row_groups(source, name))
        except (pa.ArrowException, OSError) as error:
            raise Code.SOURCE_DAMAGED(f"{name} cannot be read as Parquet ({str(error)[:300]})", name=name) from error


def _csv(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.csv as pacsv

    with path.open("rb") as file:
        names = next(iter(pacsv.open_csv(file, pacsv.ReadOptions(block_size=CSV_BLOCK_BYTES)))).schema.names
    # As text: how a value is written in it is what a conversion has to judge.
    convert = pacsv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=False,
    )
    with path.open("rb") as file:
        yield from pacsv.open_csv(file, pacsv.ReadOptions(block_size=CSV_BLOCK_BYTES), convert_options=convert)


def _json(path: Path) -> Iterator[pa.RecordBatch]:
    import io
    from itertools import islice

    import pyarrow.json as pajson

    with path.open("rb") as lines:
        while some := b"".join(islice(lines, JSON_LINES)):
            if some.strip():
                yield from pajson.read_json(io.BytesIO(some)).combine_chunks().to_batches()


def _loose(
    batches: Iterator[pa.RecordBatch], schema: Schema, predicate: Predicate | None, ranges: tuple[EncodedRange, ...]
) -> SearchedObject:
    import pyarrow.compute as pc

    from lakebed.engine.predicate import is_true

    needed = [f for f in schema.fields if predicate is not None and f.name in predicate.columns]
    if ranges != (ALL_KEYS,):
        needed += [f for f in schema.row_key if f not in needed]
    rows = unclear_rows = 0
    for batch in batches:
        columns, unclear = {}, pa.array([False] * batch.num_rows)
        for f in needed:
            columns[f.name], bad = _converted(batch, f.name, f.stored_type)
            unclear = pc.or_(unclear, bad)
        if ranges != (ALL_KEYS,):
            unclear = pc.or_(unclear, _any_null(columns, schema.row_key_names))
        found = pa.RecordBatch.from_pydict(columns).filter(pc.invert(unclear)) if columns else batch
        unclear_rows += pc.sum(unclear).as_py() or 0
        if predicate is not None and found.num_rows:
            found = found.filter(pc.fill_null(is_true(found, predicate), fill_value=False))
        if ranges != (ALL_KEYS,) and found.num_rows:
            keys = found.select(list(schema.row_key_names))
            rows += sum(contained(schema.codec.encode_columns(keys).to_pylist(), ranges))
        else:
            rows += found.num_rows
    return SearchedObject(rows, unclear_rows=unclear_rows)


def _any_null(columns: Mapping[str, pa.Array], names: tuple[str, ...]) -> pa.Array:
    import pyarrow.compute as pc

    found = pc.is_null(columns[names[0]])
    for name in names[1:]:
        found = pc.or_(found, pc.is_null(columns[name]))
    return found


def _converted(batch: pa.RecordBatch, name: str, wanted: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return a column in the table's type, and where it has no value of that type: everywhere if it is missing."""
    import pyarrow.compute as pc

    from lakebed.engine.computed_columns import try_cast
    from lakebed.files.parquet.sizes import decoded
    from lakebed.model.validity import masked

    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, wanted), pa.array([True] * batch.num_rows)
    given = masked(decoded(batch.column(name)))
    try:
        made = given if given.type == wanted else try_cast(given, wanted)
    except (Error, pa.ArrowException):
        return pa.nulls(batch.num_rows, wanted), pa.array([True] * batch.num_rows)
    return made, pc.and_(pc.is_null(made), pc.is_valid(given))
