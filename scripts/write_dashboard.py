"""Writes the dashboard for Grafana, deploy/grafana/lakebed.json: python scripts/write_dashboard.py.

Metrics are named through :func:`m`, which knows only those that the service publishes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lakebed.server.monitoring.definitions import METRICS, MetricKind

DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "lakebed.json"
SOURCE = {"type": "prometheus", "uid": "${source}"}
T = 'table=~"$table"'

Query = tuple[str, str]
Panel = tuple[str, str, str, tuple[Query, ...]]
"""Title, what it means, unit, and queries with their legends."""


def m(name: str, selector: str = "", *, part: str = "") -> str:
    """A selector of a metric; ``part`` is bucket, sum or count of a histogram."""
    (metric,) = (metric for metric in METRICS if metric.name == name)
    if bool(part) != (metric.kind is MetricKind.HISTOGRAM):
        raise ValueError(f"{name} is a {metric.kind.value}")
    return (
        f"{metric.full_name}{f'_{part}' if part else ''}{{{selector}}}"
        if selector
        else metric.full_name + (f"_{part}" if part else "")
    )


def rate(by: str, name: str, selector: str = "", *, part: str = "") -> str:
    """The rate a second, added up over services."""
    return f"sum by ({by}) (rate({m(name, selector, part=part)}[$__rate_interval]))"


def quantile(share: float, by: str, name: str, selector: str = "") -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({share}, {rate(f'{by}, le' if by else 'le', name, selector, part='bucket')})"


def largest(by: str, name: str, selector: str = "") -> str:
    """A gauge of tables: every service publishes what it knows, so they are not added up."""
    return f"max by ({by}) ({m(name, selector)})"


def quantiles(by: str, name: str, selector: str, legend: str) -> tuple[Query, ...]:
    """The median and the 99th percentile."""
    return tuple((quantile(share, by, name, selector), f"{legend} p{share * 100:.0f}") for share in (0.5, 0.99))


ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        ("Services", "Services that answer.", "short", (('sum(up{job="lakebed"})', "up"),)),
        ("Tables", "All, and those without values of their own.", "short",
         ((f"max({m('tables')})", "tables"), (f"max({m('tables_unlabelled')})", "without a label"))),
        ("Requests", "By status.", "reqps", ((rate("status", "http_request_seconds", part="count"), "{{status}}"),)),
        ("Latency of requests", "By route.", "s",
         ((quantile(0.99, "route", "http_request_seconds"), "{{route}} p99"),)),
        ("Rows in and out", "Added by writes, returned by reads.", "short",
         ((rate("table", "write_rows_total", T), "{{table}} written"),
          (rate("table", "read_rows_total", T), "{{table}} read"))),
        ("Waiting", "How long operations have waited for what is gone.", "s",
         ((largest("table, operation", "operation_waiting_seconds", T) + " > 0", "{{table}} {{operation}}"),)),
    ),
    "Reads": (
        ("Lookups", "Table.get.", "s", quantiles("table", "read_seconds", f'kind="get", {T}', "{{table}}")),
        ("Scans to the first batch", "Without the reader's own time.", "s",
         quantiles("table", "read_seconds", f'kind="scan_first_batch", {T}', "{{table}}")),
        ("SQL", "To the last batch.", "s", quantiles("", "read_seconds", 'kind="sql"', "SQL")),
        ("Reads", "By kind.", "reqps", ((rate("kind", "read_seconds", T, part="count"), "{{kind}}"),)),
        ("Errors of reads", "Those of callers included.", "reqps",
         ((rate("table, kind", "read_errors_total", T), "{{table}} {{kind}}"),)),
        ("Cache hits", "Share of lookups.", "percentunit",
         (((f"{rate('cache', 'cache_hits_total')} / ({rate('cache', 'cache_hits_total')} + "
           f"{rate('cache', 'cache_misses_total')})"), "{{cache}}"),)),
    ),
    "Writes and commits": (
        ("Commits", "By outcome.", "ops", ((rate("outcome", "commit_seconds", part="count"), "{{outcome}}"),)),
        ("Latency of commits", "With the wait in the queue.", "s",
         quantiles("table", "commit_seconds", T, "{{table}}")),
        ("Lost races", "Entries that another process won.", "ops",
         ((rate("table", "commit_conflicts_total", T), "{{table}}"),)),
        ("Transactions an entry", "Group commit.", "short",
         (((f"sum(rate({m('commit_group_size', part='sum')}[$__rate_interval])) / "
           f"sum(rate({m('commit_group_size', part='count')}[$__rate_interval]))"), "mean"),)),
        ("Bytes sent", "Data files of writes, ingest and compaction.", "Bps",
         ((rate("table", "written_bytes_total", T), "{{table}}"),)),
        ("Checkpoints", "By outcome.", "ops",
         ((rate("outcome", "checkpoint_write_seconds", part="count"), "{{outcome}}"),)),
    ),
    "Tables": (
        ("Rows", "Before any merge.", "short", ((largest("table", "table_rows", T), "{{table}}"),)),
        ("Bytes", "Of all files.", "bytes", ((largest("table", "table_bytes", T), "{{table}}"),)),
        ("Files a partition", "Mean and largest.", "short",
         ((largest("table", "table_partition_files_mean", T), "{{table}} mean"),
          (largest("table", "table_partition_files_max", T), "{{table}} max"))),
        ("Files that wait for ingest", "Open requests.", "short",
         ((largest("table", "table_backlog_files", T), "{{table}}"),)),
        ("Age of the oldest request", "How far ingest is behind.", "s",
         ((largest("table", "table_backlog_oldest_seconds", T), "{{table}}"),)),
        ("Bytes due to compaction", "What would be merged now.", "bytes",
         ((largest("table", "table_compaction_due_bytes", T), "{{table}}"),)),
        ("Versions since the checkpoint", "What a process that opens the table replays.", "short",
         ((f"{largest('table', 'table_version', T)} - {largest('table', 'table_checkpoint_version', T)}",
           "{{table}}"),)),
        ("Hooks and views", "Versions that they are behind.", "short",
         ((largest("table", "table_hook_lag_versions", T), "{{table}} hooks"),
          (largest("table", "table_view_lag_versions", T), "{{table}} view"))),
        ("Since the last garbage collection", "The retention lag.", "s",
         ((f"time() - {largest('table', 'table_gc_end_time_seconds', T)}", "{{table}}"),)),
    ),
    "Maintenance": (
        ("Work under way", "By operation.", "short", ((f"sum by (operation) ({m('service_work')})", "{{operation}}"),)),
        ("Failures in a row", "By table and operation.", "short",
         ((largest("table, operation", "operation_failures", T) + " > 0", "{{table}} {{operation}}"),)),
        ("Operations that ended", "By outcome.", "ops",
         ((rate("operation, outcome", "operation_seconds", part="count"), "{{operation}} {{outcome}}"),)),
        ("Time of operations", "p99.", "s",
         ((quantile(0.99, "operation", "operation_seconds"), "{{operation}}"),)),
        ("Jobs that ended", "As lakebed jobs lists them.", "ops",
         ((rate("operation, outcome", "job_seconds", part="count"), "{{operation}} {{outcome}}"),)),
        ("Garbage collected", "Bytes of deleted files.", "Bps",
         ((rate("table", "gc_deleted_bytes_total", T), "{{table}}"),)),
        ("Spark", "The session.", "short", ((f"max by (state) ({m('service_spark')}) > 0", "{{state}}"),)),
    ),
    "Process and store": (
        ("CPU", "Cores.", "short",
         (('rate(process_cpu_seconds_total{job="lakebed"}[$__rate_interval])', "{{instance}}"),)),
        ("Memory", "Resident.", "bytes", (('process_resident_memory_bytes{job="lakebed"}', "{{instance}}"),)),
        ("Caches", "Bytes.", "bytes", ((f"sum by (cache) ({m('cache_bytes')})", "{{cache}}"),)),
        ("Requests to the store", "By operation and outcome.", "reqps",
         ((rate("operation, outcome", "storage_request_seconds", part="count"), "{{operation}} {{outcome}}"),)),
        ("Latency of the store", "p99 by operation.", "s",
         ((quantile(0.99, "operation", "storage_request_seconds"), "{{operation}}"),)),
    ),
}  # fmt: skip


def panel(number: int, at: tuple[int, int], one: Panel) -> dict[str, Any]:
    """One graph."""
    title, description, unit, queries = one
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"x": at[0], "y": at[1], "w": 8, "h": 7},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for place, (expr, legend) in enumerate(queries)
        ],
    }


def dashboard() -> dict[str, Any]:
    """The whole document."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, graphs in ROWS.items():
        row = {"type": "row", "title": title, "collapsed": False, "panels": []}
        panels.append({"id": len(panels) + 1, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, **row})
        y += 1
        for place, one in enumerate(graphs):
            panels.append(panel(len(panels) + 1, (8 * (place % 3), y + 7 * (place // 3)), one))
        y += 7 * -(-len(graphs) // 3)
    return {
        "uid": "lakebed",
        "title": "Lakebed",
        "description": "Tables of a Lakebed instance and the services that maintain them (docs/metrics.md).",
        "tags": ["lakebed"],
        "timezone": "browser",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
                {
                    "name": "table",
                    "type": "query",
                    "label": "Table",
                    "datasource": SOURCE,
                    "query": {"query": f"label_values({m('table_version')}, table)", "refId": "tables"},
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    DASHBOARD.write_text(text(), "utf-8")
