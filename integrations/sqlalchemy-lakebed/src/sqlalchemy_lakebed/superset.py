"""What Apache Superset has to know of Lakebed: grains of time, literals of times, kinds of columns, and errors.

Superset finds it by the entry point ``superset.db_engine_specs``; nothing else imports it. Superset reads rows over
Arrow, since pandas has the nanoseconds that Python has not. Core type: :class:`LakebedEngineSpec`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import types
from superset.constants import TimeGrain
from superset.db_engine_specs.base import BaseEngineSpec
from superset.errors import SupersetErrorType
from superset.utils.core import GenericDataType


class LakebedEngineSpec(BaseEngineSpec):
    """Lakebed, as Superset calls it in its forms."""

    engine = "lakebed"
    engine_name = "Lakebed"
    sqlalchemy_uri_placeholder = "lakebed+https://:TOKEN@host:8017"
    supports_multivalues_insert = True

    # Names of types in a table, in the dialect's words and in Arrow's, that Superset does not know by itself.
    column_type_mappings = (
        (re.compile(r"^(dictionary<string>|uuid|json)", re.IGNORECASE), types.String(), GenericDataType.STRING),
        (re.compile(r"^(u?int\d+|tinyint|.* unsigned)$", re.IGNORECASE), types.BigInteger(), GenericDataType.NUMERIC),
        (re.compile(r"^halffloat", re.IGNORECASE), types.Float(), GenericDataType.NUMERIC),
    )

    # Lakebed's own message is shown: an empty text stands for it.
    custom_errors = {  # noqa: RUF012 - as the class above has it
        re.compile(r"No field named "): ("", SupersetErrorType.COLUMN_DOES_NOT_EXIST_ERROR, {}),
        re.compile(r"no table named "): ("", SupersetErrorType.TABLE_DOES_NOT_EXIST_ERROR, {}),
    }

    _time_grain_expressions = {  # noqa: RUF012
        None: "{col}",
        TimeGrain.SECOND: "date_trunc('second', {col})",
        TimeGrain.FIVE_SECONDS: "date_bin(INTERVAL '5 seconds', {col})",
        TimeGrain.THIRTY_SECONDS: "date_bin(INTERVAL '30 seconds', {col})",
        TimeGrain.MINUTE: "date_trunc('minute', {col})",
        TimeGrain.FIVE_MINUTES: "date_bin(INTERVAL '5 minutes', {col})",
        TimeGrain.TEN_MINUTES: "date_bin(INTERVAL '10 minutes', {col})",
        TimeGrain.FIFTEEN_MINUTES: "date_bin(INTERVAL '15 minutes', {col})",
        TimeGrain.THIRTY_MINUTES: "date_bin(INTERVAL '30 minutes', {col})",
        TimeGrain.HOUR: "date_trunc('hour', {col})",
        TimeGrain.SIX_HOURS: "date_bin(INTERVAL '6 hours', {col})",
        TimeGrain.DAY: "date_trunc('day', {col})",
        TimeGrain.WEEK: "date_trunc('week', {col})",
        TimeGrain.WEEK_STARTING_SUNDAY: "date_trunc('week', {col} + INTERVAL '1 day') - INTERVAL '1 day'",
        TimeGrain.WEEK_STARTING_MONDAY: "date_trunc('week', {col})",
        TimeGrain.WEEK_ENDING_SATURDAY: "date_trunc('week', {col} + INTERVAL '1 day') + INTERVAL '5 days'",
        TimeGrain.WEEK_ENDING_SUNDAY: "date_trunc('week', {col}) + INTERVAL '6 days'",
        TimeGrain.MONTH: "date_trunc('month', {col})",
        TimeGrain.QUARTER: "date_trunc('quarter', {col})",
        TimeGrain.YEAR: "date_trunc('year', {col})",
    }

    @classmethod
    def fetch_data(cls, cursor: Any, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Return all rows; none of a statement that changed rows."""
        if cursor.description is None:
            return []
        try:
            table = cursor.fetch_arrow_table()
        except Exception as error:
            raise cls.get_dbapi_mapped_exception(error) from error
        return list(zip(*(_held(column) for column in table.columns), strict=True))

    @classmethod
    def epoch_to_dttm(cls) -> str:
        """Return the time of a number of seconds."""
        return "to_timestamp({col})"

    @classmethod
    def convert_dttm(cls, target_type: str, dttm: datetime, db_extra: dict[str, Any] | None = None) -> str | None:
        """Return a literal of a time, for a column of a type."""
        kind = cls.get_sqla_column_type(target_type)
        if isinstance(kind, types.Date):
            return f"DATE '{dttm.date().isoformat()}'"
        if isinstance(kind, types.DateTime):
            return f"TIMESTAMP '{dttm.isoformat(sep=' ', timespec='microseconds')}'"
        return None


def _held(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Superset can hold them.

    It takes UUIDs for bytes, and has no whole numbers from 2⁶³ on: these are texts and decimals.
    """
    if column.type == pa.uuid():
        return [None if value is None else str(value) for value in column.to_pylist()]
    over = pa.types.is_uint64(column.type) and (pc.max(column).as_py() or 0) > _INT64_MAX
    return (column.cast(pa.decimal128(20)) if over else column).to_pylist()


_INT64_MAX = 2**63 - 1
