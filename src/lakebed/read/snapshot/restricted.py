"""The part of a snapshot that a policy shows to one reader.

Core type: :class:`RestrictedSnapshot`. Every read has two stages. The first reads the table, merged and filtered as for
anyone, and evaluates the predicate of the policy; it reads no hidden column, nor the values of a masked one. The second
works on the remaining rows: it adds the masks, and evaluates the caller's predicate. Errors of the first stage about
rows say no more than that there is one (:func:`evaluating`). The caller's expressions are never evaluated over a hidden
row, so neither an error, such as a division by zero, nor a count or a limit can reveal one. The engine may reorder the
conditions of one statement, so it gets only the rows of the first stage.

Conditions of the caller on key columns, which a policy cannot hide, determine which keys are read. The time of a read
therefore depends on the number of hidden rows among these keys.

Errors: those of :class:`~lakebed.read.snapshot.snapshot.Readable`; AccessError for a policy that cannot be applied,
and for operations on all rows of a table, such as listing its files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from lakebed import clock
from lakebed.engine.predicate import Predicate, check_where, constant, keep
from lakebed.errors import Code, Error
from lakebed.model.checks import check_flag, check_sample, check_whole_number
from lakebed.model.extension_values import returned, values_of
from lakebed.model.keys import ALL_KEYS, KeyCodec, KeyRange
from lakebed.model.policies import Policy, policy_failed
from lakebed.model.schema import Schema
from lakebed.read.rows.conditions import And, Condition, only, plan_where
from lakebed.read.rows.counting import Count, reservoir
from lakebed.read.rows.expressions import condition_of
from lakebed.read.rows.plan import coarser
from lakebed.read.rows.prefix_scan import check_depth
from lakebed.read.rows.row_stream import RowStream, returned_stream
from lakebed.read.rows.second_key import Values, check_alone
from lakebed.read.snapshot.handles import TableHandle
from lakebed.read.snapshot.row_views import raw_choice, selected

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.model.keys import EncodedRange
    from lakebed.model.state.table_state import ViewSource
    from lakebed.read.rows.engine_frames import Frame
    from lakebed.read.rows.reader import Reader
    from lakebed.read.snapshot.snapshot import Snapshot

_POLICY_CODES = frozenset({Code.EXPRESSION_FAILED, Code.PREDICATE_INVALID})
_ROW_CODES = frozenset({
    Code.AGGREGATE_TOO_LARGE, Code.MERGE_FUNCTION_FAILED, Code.VALUE_INVALID, Code.VALUE_NULL,
    Code.VALUE_NOT_REPRESENTABLE, Code.GENERATED_VALUE_MISMATCH, Code.ROW_TOO_LARGE, Code.PAGE_TOO_LARGE,
    Code.BATCH_TOO_LARGE,
})  # fmt: skip
"""What the first stage may find in a row, which the messages name by key and value."""


class RestrictedReads(TableHandle[RowStream]):
    """The reads of a part of a table. Methods that it does not declare concern all rows, and are refused."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise refused(name)

    def explain(self, *_: Any, **__: Any) -> NoReturn:
        """Raise AccessError: statistics of a read reveal hidden rows."""
        raise refused("explain")

    def partitions(self) -> NoReturn:
        """Raise AccessError: partitions are of all rows."""
        raise refused("partitions")

    def files(self, *_: KeyRange) -> NoReturn:
        """Raise AccessError: files are of all rows."""
        raise refused("files")

    @abstractmethod
    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> RestrictedSnapshot:
        """As :meth:`Readable.snapshot`."""

    def get(  # noqa: PLR0913 - as scan
        self,
        *key: Any,
        by: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """As :meth:`Readable.get`, without ``apply``; ``by`` has no masked field."""
        _refuse_apply(apply)
        now = self.snapshot(max_staleness, at_least)
        if by is not None:
            now.values_of(by)
        return now.visible_of(lambda whole, names: whole.get(*key, by=by, columns=names, raw=raw), columns, raw=raw)

    def get_many(  # noqa: PLR0913 - as Readable.get_many
        self,
        keys: Any,
        *,
        columns: Sequence[str] | None = None,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> pa.Table:
        """As :meth:`Readable.get_many`, without ``apply``."""
        _refuse_apply(apply)
        now = self.snapshot(max_staleness, at_least)
        return now.visible_of(lambda whole, names: whole.get_many(keys, columns=names, raw=raw), columns, raw=raw)

    def scan(  # noqa: PLR0913 - as Readable.scan
        self,
        *ranges: KeyRange,
        by: Mapping[str, Any] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        raw: bool = False,
        apply: Any = None,
        max_staleness: float | None = None,
        at_least: int | None = None,
    ) -> RowStream:
        """As :meth:`Readable.scan`, without ``apply``; ``by`` has no masked field."""
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        _refuse_apply(apply)
        now = self.snapshot(max_staleness, at_least)
        view = now.view(raw=raw)
        names = view.schema.project(columns)
        wanted: Sequence[EncodedRange] = view.encoded(ranges)
        if by is not None:
            check_alone(raw=raw, apply=None)
            values = now.values_of(by)
            wanted, where = now.narrowed(values, wanted), values.conjoined(where)
        predicate = None if where is None else check_where(where, view.schema.arrow)
        rows = view.rows(wanted, names, where=predicate, limit=limit, reverse=reverse)
        return returned_stream(rows, now.schema)

    def count(self, *ranges: KeyRange, by: Mapping[str, Any] | None = None, exact: bool = False) -> Count:
        """As :meth:`Readable.count`; always exact, by a read of the keys: estimates are made from all rows."""
        check_flag("exact", exact)
        now = self.snapshot()
        with closing(now.scan(*ranges, by=by, columns=now.schema.row_key_names[:1])) as stream:
            return Count(sum(batch.num_rows for batch in stream), exact=True)

    def sample(self, rows: int, *, columns: Sequence[str] | None = None, seed: int | None = None) -> pa.Table:
        """As :meth:`Readable.sample`, by a read of all rows."""
        check_sample(rows, seed)
        with closing(self.scan(columns=columns)) as stream:
            return reservoir(stream, rows, clock.chance(seed))

    def prefixes(self, depth: int, *ranges: KeyRange, limit: int | None = None) -> pa.Table:
        """As :meth:`Readable.prefixes`, by a read of the keys."""
        now = self.snapshot()
        check_depth(depth, now.schema)
        check_whole_number("limit", limit)
        fields = now.schema.row_key[:depth]
        codec = KeyCodec(fields)
        names = [field.name for field in fields]
        encoded: dict[bytes, None] = {}
        with closing(now.scan(*ranges, columns=names)) as stream:
            for batch in stream if limit != 0 else ():
                encoded.update(dict.fromkeys(codec.encode_columns(batch).to_pylist()))
                if limit is not None and len(encoded) >= limit:
                    break
        return pa.Table.from_arrays(
            codec.decode_columns(list(encoded)[:limit]).columns, schema=now.schema.arrow_of(names)
        )


class RestrictedSnapshot(RestrictedReads):
    """The rows and columns of a snapshot that a policy shows. Safe to use from many threads."""

    def __init__(self, whole: Snapshot, policy: Policy) -> None:
        """Raises AccessError if the policy does not fit the snapshot's columns."""
        self._whole = whole
        self._policy = policy
        types = {field.name: field.type for field in whole.schema.fields}
        # A mask of a missing column is refused by the schema, below.
        self._masks = {name: _mask(name, text, types[name]) for name, text in policy.masks if name in types}
        self._schema = policy.schema_of(
            whole.schema, [name for name, value in self._masks.items() if not value.is_valid]
        )

    def __repr__(self) -> str:
        return f"<part of lakebed table {self._whole.state.table} at version {self.version}>"

    @property
    def version(self) -> int:
        """The version of the table that this snapshot shows."""
        return self._whole.version

    @property
    def schema(self) -> Schema:
        """The visible fields of the table at that version."""
        return self._schema

    @property
    def fed_by(self) -> ViewSource | None:
        """What fills the table if it is a view or an index; None for any other."""
        return self._whole.fed_by

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> RestrictedSnapshot:
        """As :meth:`Readable.snapshot`."""
        self._whole.snapshot(max_staleness, at_least)
        return self

    # -- plans, as those of Snapshot -----------------------------------------------------------------------------------

    def encoded(self, ranges: Sequence[KeyRange]) -> tuple[EncodedRange, ...]:
        """As :meth:`Snapshot.encoded`."""
        return self._whole.encoded(ranges)

    def rows(  # noqa: PLR0913 - what a scan reads, checked
        self,
        ranges: Sequence[EncodedRange],
        names: Sequence[str],
        *,
        condition: Condition | None = None,
        where: Predicate | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> RowStream:
        """Return the visible rows of the ranges for which ``where`` is true, in key order.

        ``where`` is checked against the visible columns; ``condition`` is as for :meth:`Snapshot.rows`.
        """
        whole, first = self._whole, self._predicate
        asked = [] if condition is None else [condition]
        if where is not None:
            asked.append(condition_of(where.parts))
        # The stored values of masked columns are not those that the caller's conditions are about.
        conditions = [only(one, set(self.schema.names) - self._masks.keys()) for one in asked]
        if first is not None:
            conditions.append(condition_of(first.parts))
        planned = coarser(plan_where(whole.state, ranges, And(conditions)), ranges)
        needed = tuple(dict.fromkeys((*names, *(() if where is None else where.columns))))
        read = self.columns_read(needed)
        with evaluating():
            stream = whole.reader.scan(planned, read, limit if where is None else None, where=first, reverse=reverse)
        arrow = self.schema.arrow_of(needed)
        return RowStream(self.schema.arrow_of(names), selected(self._masked(stream, arrow), where, names, limit))

    def frame(self, condition: Condition, columns: Iterable[str]) -> tuple[Reader, Frame]:
        """Return visible rows for an engine that evaluates the condition itself, with these columns, and their reader.

        They are a local copy: the engine would evaluate conditions of a statement over the other rows as well.
        """
        from lakebed.read.rows.engine_frames import Frame
        from lakebed.read.rows.merged_copy import rows_copy

        wanted = set(columns)
        names = [name for name in self.schema.names if name in wanted] or self.schema.names[:1]
        copy = rows_copy(self.rows((ALL_KEYS,), names, condition=condition))
        reader = self._whole.reader
        return reader, Frame(reader.engine().copied_rows(copy, self.schema), (), (copy,))

    def values_of(self, by: Any) -> Values:
        """Return the values of indexed fields that rows shall have.

        Raises UsageError, BadKeyError; AccessError for a masked field, whose values the rows that are found would tell.
        """
        if isinstance(by, Mapping) and by:
            self.schema.project(tuple(by))
            for name in by:
                if name in self._masks:
                    raise Code.PERMISSION_MISSING(
                        f"by: {name} is masked for a role of this principal, so no rows are found by it",
                        permission="READ",
                    )
        return Values.of(self._whole.state, by, self.schema.names)

    def narrowed(self, values: Values, ranges: Sequence[EncodedRange]) -> Sequence[EncodedRange]:
        """Return the parts of the ranges in which rows may have the values."""
        with evaluating():
            return self._whole.second_key.narrowed(values, ranges)

    # -- the two stages ------------------------------------------------------------------------------------------------

    @cached_property
    def _predicate(self) -> Predicate | None:
        """The predicate of the policy, over all columns. Raises AccessError if it does not fit them."""
        if self._policy.where is None:
            return None
        with evaluating():
            return check_where(self._policy.where, self._whole.schema.arrow)

    def view(self, *, raw: Any) -> RestrictedSnapshot:
        """Return this snapshot, or its raw rows."""
        view = raw_choice(self._whole, None, raw=raw)
        return self if view is self._whole else RestrictedSnapshot(view, self._policy)

    def columns_read(self, names: Sequence[str]) -> list[str]:
        """Return the columns of the table to read for these names, at least one; masked columns are not read."""
        return list(dict.fromkeys(name for name in names if name not in self._masks)) or [self.schema.row_key_names[0]]

    def masked(self, rows: pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
        """Return the columns of these names: masks, and the values of the rows."""
        masks, count = self._masks, rows.num_rows
        return [pa.repeat(masks[name], count) if name in masks else rows.column(name) for name in names]

    def visible_of(
        self, read: Callable[[Snapshot, Sequence[str]], pa.Table], columns: Sequence[str] | None, *, raw: Any
    ) -> pa.Table:
        """Return the visible part of the rows that ``read`` finds by their keys in the whole table."""
        view = self.view(raw=raw)
        names = view.schema.project(columns)
        own = () if self._predicate is None else self._predicate.columns
        with evaluating():
            rows = read(self._whole, list(dict.fromkeys((*self.columns_read(names), *own))))
        # Predicates are over the values of dictionaries.
        batches: Iterable[pa.RecordBatch] = values_of(rows, self._whole.schema).to_batches()
        if self._predicate is not None:
            with evaluating():
                batches = [keep(batch, self._predicate) for batch in batches]
        arrow = view.schema.arrow_of(names)
        return returned(pa.Table.from_batches(self._with_masks(batches, arrow), arrow), self.schema)

    def _masked(self, stream: RowStream, arrow: pa.Schema) -> Generator[pa.RecordBatch]:
        with closing(stream), evaluating():
            yield from self._with_masks(stream, arrow)

    def _with_masks(self, batches: Iterable[pa.RecordBatch], arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
        return (pa.RecordBatch.from_arrays(self.masked(batch, arrow.names), schema=arrow) for batch in batches)


def refused(what: str) -> Error:
    """Return the error for an operation on all rows of a table."""
    return Code.PERMISSION_MISSING(
        f"{what} is of all rows of the table, and a role of this principal shows a part of them; use get, get_many, "
        "scan, count, sample, prefixes, changes or SQL",
        permission="READ",
    )


def _refuse_apply(apply: Any) -> None:
    if apply is not None:
        raise refused("what a function given as apply gets")


def _mask(name: str, text: str, kind: pa.DataType) -> pa.Scalar:
    with evaluating(f"the mask of {name} is no constant that the column can have"):
        return constant(text, kind)


@contextmanager
def evaluating(why: str = "its row filter cannot be evaluated for the rows of the table") -> Iterator[None]:
    """Hide what an error says of rows from the caller, because it may be of a hidden one: its key, a value, a sum.

    Every read of the first stage passes here. Errors about the request itself are raised as they are.
    """
    try:
        yield
    except Error as error:
        if error.code in _POLICY_CODES:
            raise policy_failed(why) from None
        if error.code in _ROW_CODES:
            raise error.code(
                "the table has a row that cannot be read, which may be hidden from this principal; an admin gets an "
                "error that names it"
            ) from None
        raise
