"""Merges sorted files into one ordered stream or run, in memory that follows a setting and not the size of the inputs.

The merge is a DataFusion plan with one partition for each input: scans that declare their order, a union, a
sort-preserving merge (:func:`ordered`, which scans of few files use as well). The plan is checked before it runs: one
that sorts would read all of its input first, and is an error. Rows with equal sort columns come out in any order, which
is all that a ``keep_all`` table needs.

Core functions: :func:`merge_runs` writes a run, :func:`merge_stream` gives batches.

What a merge holds, and how each part is bounded by the memory limit M:

* *Bytes read.* A Parquet scan keeps the compressed bytes of all row groups that it has read until its end
  (apache/arrow-rs#9695: ranges fetched together are not released), so a single plan would hold all of its inputs.
  Therefore the keys are divided into *slices* of M/16 to M/4 bytes of input. Each slice is merged by a plan of its own,
  one after another, with a predicate that prunes row groups and pages. At each border between slices one page of each
  input is decoded twice.
* *Batches.* The merge holds about eight batches of each input (decoded, as comparable rows, in the channel, in the
  output). The rows of a batch are limited so that these stay within M/2.
* *Fan-in.* Each Parquet input costs about 2 MiB whatever its size (pages, decompressors, metadata), each Arrow input a
  few batches of the size it was written with. More inputs than fit into M are merged in *levels*: groups of inputs into
  Arrow files in a scratch folder, those into the output.
* *Wide rows.* The engine reads whole column chunks of a Parquet file, on threads that allocate rarely. Its allocator
  (mimalloc 2) returns what another thread has freed only at every hundredth allocation of the thread that made it,
  which may be a hundred chunks of 16 MiB. Parquet inputs with rows of 16 KiB or more are therefore decoded by Arrow
  into Arrow files first.

Arrow inputs cannot be pruned and hold one batch at a time, so a merge with any of them has one slice. Parquet inputs
among them that are too large for that go through a level first.

Measured on 2-million-row files of 50 MB, M = 512 MiB (benchmarks/kernels.py): one plan over 10 files held 0.8 GB and
grew with every file; slices held 0.4 to 0.6 GB for 10 files, 0.8 for 40, 1.0 for 200, at the same speed for 10. The
engine's allocator does not return all that is freed: the same slice merged again and again grew the process to about
five times a slice. Smaller slices lower that, so slices are as small as the double work at their borders allows.

Rules. Local paths only; scratch files are deleted when a call ends, however it ends.

Errors: DamagedError or SchemaMismatchError naming the input, StorageError if there is no room.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.engine.datafusion import between, column, context, inside, passing, read_as, sort_order, url
from lakebed.errors import Code, Error
from lakebed.model.keys import EncodedRange
from lakebed.model.schema import Schema
from lakebed.parquet.file_writer import as_schema, write_run
from lakebed.parquet.layout import Layout, SortedFile
from lakebed.sorting.merge_inputs import MergeInput, open_input, put_into_arrow, read_through, sample, spans
from lakebed.sorting.sort import write_spill
from lakebed.storage.disk_space import scratch_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from datafusion import DataFrame, ExecutionPlan, Expr, SessionContext

    from lakebed.engine.predicate import Predicate

_FAN_IN_MIN = 12
_INPUT_BYTES = 2 * 1024 * 1024
_BATCHES_HELD = 8
_SLICE_ROWS = 40_000
"""The least rows of each input in a slice: one page of each decoded twice at a border is then 10% of the work."""
_POOL_BYTES_MIN = 64 * 1024 * 1024
"""The engine fails beyond twice the limit; the smallest merge needs this much."""
_SAMPLES = 8
"""Sampled rows for a slice: the sizes of slices then vary by about a third."""
_BATCH_ROWS_MIN, _BATCH_ROWS_MAX = 256, 16_384
_BATCH_BYTES = 4 * 1024 * 1024

_STREAMING = {
    "SortPreservingMergeExec", "UnionExec", "FilterExec", "ProjectionExec", "DataSourceExec", "CoalesceBatchesExec",
    "CooperativeExec", "EmptyExec", "CoalescePartitionsExec",
}  # fmt: skip
"""Operators that a merge may consist of: each holds batches, none holds its input."""

_MERGES = {"SortPreservingMergeExec", "CoalescePartitionsExec"}
"""The second takes the place of the first if the range leaves one value for all sort columns: a single key."""


def merge_runs(  # noqa: PLR0913 - what, how, where, which part, how much
    inputs: Sequence[Path],
    layout: Layout,
    scratch: Path,
    *,
    key_range: EncodedRange | None,
    memory_limit_bytes: int,
    cuts: Sequence[bytes] = (),
    slices: Sequence[EncodedRange] = (),
    progress: Callable[[int], None] | None = None,
) -> list[SortedFile]:
    """Merge sorted files, restricted to a key range, into one run in the folder ``scratch``.

    ``slices`` tile the key range in order, each with at most a quarter of the memory limit of input. A caller that has
    the inputs' summaries can give them; otherwise keys are sampled from the inputs.

    Requires inputs sorted by row key, then sort key, of any schema that the table had: Parquet files, or Arrow IPC
    files such as :func:`~lakebed.sorting.sort.encode_piece` makes. ``progress`` is called with the rows of each batch.
    The result is that of :func:`~lakebed.parquet.file_writer.write_run`; without rows there is no file.

    Raises DamagedError or SchemaMismatchError naming the input at fault, StorageError if there is no room.
    """
    opened = [open_input(path, layout.schema) for path in inputs]

    def counted() -> Generator[pa.RecordBatch]:
        for batch in _merged(opened, layout.schema, [key_range, *slices], memory_limit_bytes, scratch):
            if progress is not None:
                progress(batch.num_rows)
            yield batch

    rows = sum(item.rows for item in opened)
    with contextlib.closing(counted()) as batches:
        return write_run(batches, layout, scratch, rows_estimate=rows, cuts=cuts, memory_limit_bytes=memory_limit_bytes)


def merge_stream(  # noqa: PLR0913 - as above
    inputs: Sequence[Path],
    schema: Schema,
    *,
    key_range: EncodedRange | None,
    memory_limit_bytes: int,
    where: Predicate | None = None,
    columns: Sequence[str] | None = None,
    scratch: Path | None = None,
) -> Iterator[pa.RecordBatch]:
    """The merged rows as batches with the schema's columns, or the named ones, in key order.

    ``scratch`` holds the levels of a merge with very many inputs; by default the system's folder for temporary files.
    Raises as :func:`merge_runs`.
    """
    names = schema.project(columns)
    folder = Path(tempfile.gettempdir()) if scratch is None else scratch
    opened = [open_input(path, schema) for path in inputs]
    for batch in _merged(opened, schema, [key_range], memory_limit_bytes, folder, where=where):
        yield batch if names == schema.names else batch.select(names)


def _merged(  # noqa: PLR0913 - as above
    inputs: Sequence[MergeInput],
    schema: Schema,
    ranges: Sequence[EncodedRange | None],
    memory_limit_bytes: int,
    scratch: Path,
    *,
    where: Predicate | None = None,
) -> Generator[pa.RecordBatch]:
    """``ranges`` are the key range, then the slices that tile it, if they are known."""
    present = [item for item in inputs if item.rows]
    if not present or (ranges[0] is not None and ranges[0].empty):
        return
    if any(item.is_wide for item in present):
        with scratch_folder(scratch, "wide") as folder:
            places = [(item, folder / f"{index:06d}.arrow") for index, item in enumerate(present)]
            narrow = [put_into_arrow(item, schema, ranges[0], at) if item.is_wide else item for item, at in places]
            yield from _merged(narrow, schema, ranges, memory_limit_bytes, scratch, where=where)
        return
    groups = _level(present, memory_limit_bytes)
    if len(groups) == 1:
        yield from _one_level(groups[0], schema, ranges, memory_limit_bytes, where)
        return
    with scratch_folder(scratch, "merge") as folder:
        spills = []
        for group in groups:
            if len(group) == 1 and group[0].is_arrow:
                spills.append(group[0])
                continue
            rows = _merged(group, schema, ranges, memory_limit_bytes, scratch, where=where)
            with contextlib.closing(rows) as batches:
                path = write_spill(batches, schema.arrow, folder / f"{len(spills):06d}.arrow")
            widest = max(item.row_bytes for item in group)
            spill = open_input(path, schema)
            spills.append(replace(spill, row_bytes=max(widest, spill.row_bytes)))
        yield from _merged(spills, schema, ranges, memory_limit_bytes, scratch, where=where)


def _level(inputs: Sequence[MergeInput], memory_limit_bytes: int) -> list[list[MergeInput]]:
    """The groups of inputs that are merged each on its own first; one group if the inputs fit into one plan."""
    arrow = [item for item in inputs if item.is_arrow]
    parquet = [item for item in inputs if not item.is_arrow]
    if arrow and sum(item.file_bytes for item in parquet) > memory_limit_bytes // 4:
        return [parquet, *([item] for item in arrow)]
    held = sum(_held_bytes(item) for item in inputs)
    fan_in = max(_FAN_IN_MIN, len(inputs) * memory_limit_bytes // max(1, held))
    if len(inputs) <= fan_in:
        return [list(inputs)]
    # Groups of equal size, or a last group of one file would only be copied.
    count = -(-len(inputs) // fan_in)
    return [list(inputs[i * len(inputs) // count : (i + 1) * len(inputs) // count]) for i in range(count)]


def _held_bytes(item: MergeInput) -> int:
    batches = (3 * item.batch_bytes) if item.is_arrow else (_BATCHES_HELD * _BATCH_ROWS_MIN * item.row_bytes)
    return batches + (0 if item.is_arrow else _INPUT_BYTES)


def _one_level(
    inputs: Sequence[MergeInput],
    schema: Schema,
    ranges: Sequence[EncodedRange | None],
    memory_limit_bytes: int,
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    row_bytes = max(item.row_bytes for item in inputs)
    rows = memory_limit_bytes // 2 // (_BATCHES_HELD * len(inputs) * row_bytes)
    batch_rows = max(1, min(max(rows, _BATCH_ROWS_MIN), _BATCH_ROWS_MAX, _BATCH_BYTES // row_bytes))
    engine = context(
        partitions=len(inputs), batch_rows=batch_rows, pool_bytes=max(2 * memory_limit_bytes, _POOL_BYTES_MIN)
    )
    with _attributed(inputs, schema):
        frames = [_scan(engine, item, schema, index) for index, item in enumerate(inputs)]
        slices = _slices(inputs, schema, ranges, memory_limit_bytes)
    for condition in slices:
        with _attributed(inputs, schema, where):
            plan = ordered(frames, schema, condition, where).execution_plan()
            check_plan(plan.display_indent())
        yield from _executed(engine, plan, (inputs, schema, where))


def _slices(
    inputs: Sequence[MergeInput], schema: Schema, ranges: Sequence[EncodedRange | None], memory_limit_bytes: int
) -> list[Expr | None]:
    """Conditions that divide the rows into disjoint slices in key order, each of M/16 to M/4 bytes of input.

    Rows with equal row key and sort key stay together, however many.
    """
    key_range, known = ranges[0], ranges[1:]
    within = inside(schema, key_range)
    if any(item.is_arrow for item in inputs):
        return [within]
    if known:
        return [inside(schema, part) for part in known]
    places = spans(inputs, schema, key_range)
    total = sum(span.file_bytes for span in places)
    overlap = _SLICE_ROWS * len(inputs) * total // max(1, sum(span.rows for span in places))
    size = max(1, min(max(overlap, memory_limit_bytes // 16), memory_limit_bytes // 4))
    if total <= size:
        return [within]
    rows = sample(places, schema, max(1, size // _SAMPLES))
    ends: list[list[pa.Scalar]] = []
    for index in range(_SAMPLES, rows.num_rows, _SAMPLES):
        end = [rows.column(name)[index] for name in schema.sort_names]
        if not ends or end != ends[-1]:
            ends.append(end)
    fields = (*schema.row_key, *schema.sort_key)
    bounds = [between(fields, low, high) for low, high in zip([None, *ends], [*ends, None], strict=True)]
    return [bound if within is None else within if bound is None else within & bound for bound in bounds]


def _scan(engine: SessionContext, item: MergeInput, schema: Schema, index: int) -> DataFrame:
    stored = [found.name for found in item.columns[: len(schema.sort_names)] if found is not None]
    if not item.is_arrow:
        order = [column(name).sort() for name in stored]
        frame = engine.read_parquet(url(item.path), file_extension="", file_sort_order=[order])
    else:
        # Only the SQL statement accepts an order for Arrow files.
        keys = ", ".join('"' + name.replace('"', '""') + '" ASC' for name in stored)
        location = url(item.path).replace("'", "''")
        engine.sql(f"CREATE EXTERNAL TABLE input_{index} STORED AS ARROW WITH ORDER ({keys}) LOCATION '{location}'")
        frame = engine.table(f"input_{index}")
    return frame.select(*map(read_as, schema.fields, item.columns))


def ordered(frames: Sequence[DataFrame], schema: Schema, condition: Expr | None, where: Predicate | None) -> DataFrame:
    """The rows of sorted inputs that meet the condition and the predicate, merged by row key, then sort key.

    Requires frames that declare their order, such as scans with ``file_sort_order``: the sort is then planned as a
    merge. One frame needs none.
    """
    if condition is not None:
        frames = [frame.filter(condition) for frame in frames]
    if where is not None:
        frames = [passing(frame, where, schema) for frame in frames]
    union = reduce(lambda rows, frame: rows.union(frame), frames)
    return union.sort(*sort_order(schema)) if len(frames) > 1 else union


def _executed(
    engine: SessionContext, plan: ExecutionPlan, source: tuple[Sequence[MergeInput], Schema, Predicate | None]
) -> Iterator[pa.RecordBatch]:
    with _attributed(*source):
        stream = iter(engine.execute(plan, 0))
    while True:
        with _attributed(*source):
            batch = next(stream, None)
            rows = None if batch is None else batch.to_pyarrow()
        if rows is None:
            return
        if rows.num_rows:
            yield as_schema(rows, source[1])


def check_plan(plan: str) -> None:
    """Raise Error unless the plan streams and merges: no operator that holds its input, and one merge of several scans.

    Inputs without a row that can pass the predicate are not in the plan; a single one that is left needs no merge.
    """
    operators = [line.strip().split(":")[0].split(" ")[0] for line in plan.splitlines() if line.strip()]
    unexpected = sorted(set(operators) - _STREAMING)
    merges = sum(operator in _MERGES for operator in operators)
    if unexpected or (operators.count("DataSourceExec") > 1 and merges != 1):
        reason = f"it contains {', '.join(unexpected)}" if unexpected else "it does not merge"
        raise Code.INTERNAL_ERROR(
            f"the merge would not stream: {reason}. This is a bug; the plan was:\n{plan}", plan=plan
        )


@contextlib.contextmanager
def _attributed(inputs: Sequence[MergeInput], schema: Schema, where: Predicate | None = None) -> Iterator[None]:
    """Attribute a failure of the engine to its cause: an input, which the engine does not name, or the predicate."""
    try:
        yield
    except (Error, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        # A panic of the engine is a BaseException; damaged bytes can cause one.
        if "Resources exhausted" in str(error):
            raise Code.MEMORY_LIMIT_EXCEEDED(
                f"a merge of {len(inputs)} files did not fit its memory limit; raise the setting memory_limit_bytes "
                f"({str(error)[:200]})"
            ) from error
        for item in inputs:
            read_through(item.path, schema)
        if where is not None:
            raise where.evaluation_error(error) from error
        raise Code.MERGE_FAILED(
            f"the merge failed, though each of its {len(inputs)} inputs can be read: {error}"
        ) from error
