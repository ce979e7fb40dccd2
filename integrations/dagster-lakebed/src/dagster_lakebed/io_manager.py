"""The IO manager: an asset is a table, and a partition of the asset is a range of its keys.

Core type: :class:`LakebedIOManager`. Rules:

* A materialization replaces the rows of its partitions, or of the whole table, in one commit: rows that are given are
  upserts, keys that are not given any more are deletes. Readers see the old rows or the new ones. A run that is
  repeated gives the same rows, so a retry needs no clean-up. Partitions may be materialized at the same time.
* The table merges by ``Latest``. Its row key is the column of the partition, then the columns of the asset's metadata
  ``key``. An asset without partitions needs ``key``.
* A row outside of the partition that is materialized is refused, and nothing is written.

Errors: those of Lakebed; UsageError for metadata that is missing or that the table does not have.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from dagster import ConfigurableIOManager, InputContext, MetadataValue, OutputContext, TableColumn, TableSchema
from pydantic import Field, PrivateAttr

import lakebed
from lakebed.errors import Code

_KIND = "_kind"


class LakebedIOManager(ConfigurableIOManager):
    """Stores assets in an instance of Lakebed, and loads them as the type that an input is annotated with.

    The metadata of an asset: ``key``, the columns that identify a row (in a partition); ``partition_by``, the column
    with its partition: of type string for the key of the partition, or a date or timestamp in its time window; and
    ``table``, a name other than the parts of the asset key, joined by ``__``.
    """

    url: str = Field(description="A path, s3://…, gs://…, az://…, or the http://… of a service.")
    token: str | None = Field(default=None, description="The token for a service.")
    storage_options: dict[str, str] = Field(default_factory=dict, description="Credentials of an object store.")
    _lake: Any = PrivateAttr(default=None)

    @property
    def lake(self) -> Any:
        """The instance, which is made if there is none."""
        if self._lake is None:
            if self.url.startswith(("http://", "https://")):
                self._lake = lakebed.connect(self.url, token=self.token)
            else:
                self._lake = lakebed.create(self.url, storage_options=self.storage_options or None, exist_ok=True)
        return self._lake

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Replace the rows of an asset, or of its partitions. An output of None changes nothing."""
        if obj is None:
            return
        rows = _arrow(obj)
        by = _partition_column(context)
        table = self._table(context, rows, by)
        ranges = _ranges(context, table, by)
        _check_inside(rows, ranges, table, by)
        version = _replace(table, rows, ranges)
        columns = [TableColumn(one.name, str(one.type), description=None) for one in table.schema.arrow]
        context.add_output_metadata(
            {
                "dagster/row_count": rows.num_rows,
                "dagster/table_name": table_name(context),
                "dagster/column_schema": MetadataValue.table_schema(TableSchema(columns)),
                "version": version,
                "instance": self.url,
            }
        )

    def load_input(self, context: InputContext) -> Any:
        """Return the rows of an asset, or of the partitions that the input needs, in key order."""
        upstream = context.upstream_output or context
        table = self.lake.table(table_name(upstream)).snapshot()
        ranges = _ranges(context, table, _partition_column(upstream)) if context.has_asset_partitions else ()
        # Metadata of an input would require that it has one partition.
        context.log.info("reads %s at version %s", table_name(upstream), table.version)
        with table.scan(*ranges) as rows:
            return _as_type(rows, context.dagster_type.typing_type)

    def _table(self, context: OutputContext, rows: pa.Table, by: str | None) -> Any:
        name = table_name(context)
        if name in self.lake.tables():
            return self.lake.table(name)
        key = context.definition_metadata.get("key") or []
        key = list(dict.fromkeys([*([by] if by else []), *([key] if isinstance(key, str) else key)]))
        if not key:
            raise Code.ARGUMENT_MISSING(
                f'asset {context.asset_key.to_user_string()} has no key; give metadata={{"key": ["…"]}}, the columns '
                "that identify a row"
            )
        schema = pa.schema([one.with_nullable(one.name not in key) for one in rows.schema.remove_metadata()])
        return self.lake.create_table(
            name, lakebed.Schema.from_arrow(schema, key), merge=lakebed.Latest(), if_not_exists=True
        )


def table_name(context: InputContext | OutputContext) -> str:
    """Return the name of the table of an asset."""
    return context.definition_metadata.get("table") or "__".join(context.asset_key.path)


def _partition_column(context: Any) -> str | None:
    """Return the column of partitions; None if the asset has none."""
    by = context.definition_metadata.get("partition_by")
    if by is None and context.has_asset_partitions:
        name = context.asset_key.to_user_string()
        raise Code.ARGUMENT_MISSING(f'asset {name} has partitions; give metadata={{"partition_by": "…"}}, a column')
    return by


def _ranges(context: Any, table: Any, by: str | None) -> list[lakebed.KeyRange]:
    """Return the key ranges of the partitions of a step: by time window if the column has times, else by key."""
    if not context.has_asset_partitions:
        return [lakebed.KeyRange()]
    if table.schema.row_key_names[0] != by:
        raise Code.ARGUMENTS_CONFLICT(
            f"partition_by is {by}, but the row key begins with {table.schema.row_key_names[0]}"
        )
    kind = table.schema.arrow.field(by).type
    if not pa.types.is_temporal(kind):
        return [lakebed.KeyRange.prefix(one) for one in context.asset_partition_keys]
    days: list[lakebed.KeyRange] = []
    for key in sorted(context.asset_partition_keys):
        window = context.asset_partitions_def.time_window_for_partition_key(key)
        low, high = _moment(window.start, kind), _moment(window.end, kind)
        if days and days[-1].max == low:
            low = days.pop().min
        days.append(lakebed.KeyRange(low, high))
    return days


def _moment(at: Any, kind: pa.DataType) -> Any:
    if pa.types.is_date(kind):
        return at.date()
    return at if kind.tz else at.replace(tzinfo=None)


def _check_inside(rows: pa.Table, ranges: Sequence[lakebed.KeyRange], table: Any, by: str | None) -> None:
    """Raise BadKeyError if a row lies outside of the partitions that are replaced."""
    if by is None or ranges == [lakebed.KeyRange()] or not rows.num_rows:
        return
    kind = table.schema.arrow.field(by).type
    column = rows[by].cast(kind).combine_chunks() if by in rows.column_names else pa.nulls(rows.num_rows, kind)
    if pa.types.is_temporal(kind):
        inside = pa.array([False] * rows.num_rows)
        for one in ranges:
            low, high = (pa.scalar(_first(bound), kind) for bound in (one.min, one.max))
            inside = pc.or_(inside, pc.and_(pc.greater_equal(column, low), pc.less(column, high)))
    else:
        inside = pc.is_in(column, pa.array([_first(one.min) for one in ranges], kind))
    outside = pc.invert(pc.fill_null(inside, fill_value=False))
    if (count := pc.sum(outside).as_py() or 0) > 0:
        first = column.filter(outside)[0].as_py()
        raise Code.KEY_TYPE_MISMATCH(
            f"{count} rows lie outside of the partition, the first with {by} = {first!r}; an asset returns the rows of "
            "its own partition"
        )


def _first(bound: Any) -> Any:
    """Return the value of the first key field at an end of a range."""
    return bound[0] if isinstance(bound, tuple) else bound


def _replace(table: Any, rows: pa.Table, ranges: Sequence[lakebed.KeyRange]) -> int:
    """Replace the rows of some key ranges in one commit; return the version."""
    names = list(table.schema.row_key_names)
    if missing := [one for one in names if one not in rows.column_names]:
        raise Code.KEY_COLUMN_MISSING(f"the rows have no column {', '.join(missing)}, which the row key has")
    kinds = pa.schema([table.schema.arrow.field(one) for one in names])
    given = rows.select(names).cast(kinds)
    with table.scan(*ranges, columns=names) as stream:
        gone = stream.read_all().join(given, keys=names, join_type="left anti")
    upserts = rows.append_column(_KIND, pa.array(["u"] * rows.num_rows, pa.string()))
    deletes = gone.append_column(_KIND, pa.array(["d"] * gone.num_rows, pa.string()))
    both = pa.concat_tables([upserts, deletes.cast(_part(upserts.schema, deletes.schema))], promote_options="default")
    return table.write(both, row_kind=_KIND) if both.num_rows else table.snapshot().version


def _part(schema: pa.Schema, of: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(one) for one in of.names])


def _arrow(data: Any) -> pa.Table:
    """Return the rows of an Arrow table or stream, a frame of pandas or Polars, or a list of dicts."""
    if isinstance(data, list):
        return pa.Table.from_pylist(data)
    if type(data).__module__.startswith("pandas"):
        return pa.Table.from_pandas(data, preserve_index=False)
    if not hasattr(data, "__arrow_c_stream__"):
        raise Code.ARGUMENT_INVALID(
            f"cannot store a {type(data).__name__}; return an Arrow table or stream, a pandas or Polars frame, or a "
            "list of dicts"
        )
    return pa.table(data)


def _as_type(rows: Any, wanted: Any) -> Any:
    """Return a stream as the type of an input; an Arrow table if it has none."""
    name = f"{getattr(wanted, '__module__', '').partition('.')[0]}.{getattr(wanted, '__name__', '')}"
    if name == "pandas.DataFrame":
        return rows.to_pandas()
    if name == "polars.DataFrame":
        return rows.to_polars()
    if name in ("typing.Any", "pyarrow.Table", "builtins.object", "builtins.NoneType"):
        return rows.read_all()
    raise Code.ARGUMENT_INVALID(
        f"cannot load an asset as {name}; annotate the input with pyarrow.Table, pandas.DataFrame or polars.DataFrame"
    )
