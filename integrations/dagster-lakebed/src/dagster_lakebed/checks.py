"""Checks of assets that are tables: how many rows there are, which of them are wrong, and how old the newest is.

Each function returns a check for the definitions of a code location. It reads the table through the IO manager with
the key ``io_manager_key``, and reports what it found as metadata.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any

from dagster import AssetCheckExecutionContext, AssetCheckResult, AssetChecksDefinition, AssetKey, asset_check


def row_count_check(
    asset: Any, *, rows_min: int = 1, rows_max: int | None = None, table: str | None = None, **more: Any
) -> AssetChecksDefinition:
    """Fail if the table has fewer rows than ``rows_min``, or more than ``rows_max``."""

    def run(lake: Any, name: str) -> AssetCheckResult:
        rows = lake.table(name).count(exact=True).rows
        passed = rows >= rows_min and (rows_max is None or rows <= rows_max)
        return AssetCheckResult(passed=passed, metadata={"rows": rows})

    return _check(asset, "row_count", run, table, **more)


def quality_check(asset: Any, name: str, holds: str, *, table: str | None = None, **more: Any) -> AssetChecksDefinition:
    """Fail if there are rows for which the predicate ``holds`` is not true, such as ``visits >= 0``."""

    def run(lake: Any, of: str) -> AssetCheckResult:
        quoted = of.replace('"', '""')
        found = lake.sql(f'SELECT count(*) AS n FROM "{quoted}" WHERE ({holds}) IS NOT TRUE').read_all()
        wrong = found["n"][0].as_py()
        return AssetCheckResult(passed=not wrong, metadata={"wrong_rows": wrong, "holds": holds})

    return _check(asset, name, run, table, **more)


def freshness_check(
    asset: Any, *, age_max: dt.timedelta, column: str | None = None, table: str | None = None, **more: Any
) -> AssetChecksDefinition:
    """Fail if the newest time in ``column`` is older than ``age_max``; without a column, the last write to the table.

    A time without a zone is UTC. A table without rows is not fresh.
    """

    def run(lake: Any, name: str) -> AssetCheckResult:
        newest = _newest(lake, name, column)
        age = None if newest is None else (dt.datetime.now(dt.UTC) - newest).total_seconds()
        passed = age is not None and age <= age_max.total_seconds()
        return AssetCheckResult(passed=passed, metadata={"age_s": -1.0 if age is None else age})

    return _check(asset, "freshness", run, table, **more)


def _newest(lake: Any, name: str, column: str | None) -> dt.datetime | None:
    if column is None:
        history = lake.table(name).history(limit=1)
        return history["time"][0].as_py() if history.num_rows else None
    quoted, of = column.replace('"', '""'), name.replace('"', '""')
    found = lake.sql(f'SELECT max("{quoted}") AS newest FROM "{of}"').read_all()["newest"][0].as_py()
    if found is None:
        return None
    if not isinstance(found, dt.datetime):
        found = dt.datetime.combine(found, dt.time())
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _check(
    asset: Any,
    name: str,
    run: Callable[[Any, str], AssetCheckResult],
    table: str | None,
    *,
    io_manager_key: str = "io_manager",
    blocking: bool = False,
) -> AssetChecksDefinition:
    key = asset.key if hasattr(asset, "key") else AssetKey.from_coercible(asset)
    of = table or (asset.metadata_by_key[key].get("table") if hasattr(asset, "metadata_by_key") else None)

    @asset_check(asset=key, name=name, required_resource_keys={io_manager_key}, blocking=blocking)
    def check(context: AssetCheckExecutionContext) -> AssetCheckResult:
        return run(getattr(context.resources, io_manager_key).lake, of or "__".join(key.path))

    return check
