"""Every metric that a service publishes: name, type, labels and meaning.

This is the only list: the registry is made from it, docs/metrics.md is compared with it, and the dashboard and the
alert rules in ``deploy/`` may use no other metric. Names follow the conventions of Prometheus: units are base units,
counters end in ``_total``.

Core types: :class:`Metric`, :data:`MEASURED`, :data:`TABLE_GAUGES`, :data:`SERVICE_GAUGES`. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PREFIX = "lakebed_"

QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds in seconds of histograms of what callers wait for, from a lookup in the cache to a large scan."""

LONG = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
"""Bounds in seconds of histograms of background work."""

GROUPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
"""Bounds for the transactions of one log entry; :data:`lakebed.log.queue.GROUP_MAX` is the last."""


class MetricKind(Enum):
    """The types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; ``name`` is without :data:`PREFIX`."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def full_name(self) -> str:
        """The name that is published."""
        return PREFIX + self.name


def _counter(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, help, labels)


def _gauge(name: str, help: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, help, labels)


def _histogram(name: str, help: str, *labels: str, buckets: tuple[float, ...] = QUICK) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, help, labels, buckets)


MEASURED = (
    _histogram(
        "read_seconds",
        "Time to make the rows of a read. kind: get, get_many, count; scan and sql to the last batch, "
        "scan_first_batch and sql_first_batch to the first, without the time that the reader of the rows takes.",
        "kind",
        "table",
    ),
    _counter("read_errors_total", "Reads that ended with an error, those of the caller included.", "kind", "table"),
    _counter("read_rows_total", "Rows that reads returned.", "kind", "table"),
    _counter(
        "read_bytes_total",
        "Stored bytes of pages, indexes and dictionaries that reads decoded; files that the engine reads are not "
        "counted.",
        "kind",
        "table",
    ),
    _counter(
        "submitted_files_left_out_total",
        "Submitted files that were not recorded, since they are older than what the table remembers of requests.",
        "table",
    ),
    _histogram("write_seconds", "Time of a write, from its first row to its commit.", "table"),
    _counter("write_errors_total", "Writes that ended with an error, those of the caller included.", "table"),
    _counter("write_rows_total", "Rows that writes added.", "table"),
    _counter(
        "written_bytes_total",
        "Bytes of data files that this process sent to the store, for writes, ingest and compaction.",
        "table",
    ),
    _histogram(
        "commit_seconds",
        "Time of a commit, with its wait in the queue. outcome: committed, notcommitted (rejected by the state), "
        "contended (lost too many races), crowded (the queue was full), unknown, tooold, toomanyruns, error.",
        "table",
        "outcome",
    ),
    _counter("commit_conflicts_total", "Races for a log entry that another process won.", "table"),
    _histogram("commit_group_size", "Transactions in one log entry that this process appended.", buckets=GROUPS),
    _histogram(
        "checkpoint_write_seconds",
        "Time to write a checkpoint. outcome: written, superseded (a newer one was there), inconsistent (the "
        "state breaks an invariant: a bug), failed.",
        "outcome",
        buckets=LONG,
    ),
    _histogram("gc_seconds", "Time of a garbage collection of one table.", "table", buckets=LONG),
    _counter("gc_errors_total", "Garbage collections that failed.", "table"),
    _counter("gc_deleted_files_total", "Data files that garbage collection deleted.", "table"),
    _counter("gc_deleted_bytes_total", "Bytes of data files that garbage collection deleted.", "table"),
    _gauge(
        "table_gc_end_time_seconds",
        "When garbage collection of the table last succeeded in this process, in seconds since 1970. The time since "
        "then is the retention lag: how much longer than history_s a file may have been kept.",
        "table",
    ),
    _gauge(
        "table_checkpoint_version",
        "The version of the newest checkpoint that this process has read or written; replaying the log begins there.",
        "table",
    ),
    _histogram(
        "storage_request_seconds",
        "Time of a request to an object store, with its retries; local disk is not measured. outcome: ok, error. A "
        "create that finds the name taken is an error here: a lost race.",
        "operation",
        "outcome",
    ),
    _histogram(
        "operation_seconds",
        "Time of an operation of the service on one table: ingest, compaction, splitting, refresh, gc. outcome: "
        "succeeded, partly (some partitions failed), failed, cancelled.",
        "operation",
        "outcome",
        buckets=LONG,
    ),
    _histogram(
        "job_seconds",
        "Time of a job as lakebed jobs lists it; those that found nothing to do are not. outcome: succeeded, failed, "
        "cancelled.",
        "operation",
        "outcome",
        buckets=LONG,
    ),
    _histogram(
        "http_request_seconds",
        "Time of an HTTP request to the last byte of its answer. route is the path with its parameters' names.",
        "route",
        "method",
        "status",
    ),
)
"""The measurements of :mod:`lakebed.storage.telemetry`, reported as they happen; a gauge has the last reported
value.
"""

TABLE_GAUGES = (
    _gauge("table_version", "The newest version that this service has seen.", "table"),
    _gauge("table_rows", "Rows of the table's files, before any merge.", "table"),
    _gauge("table_bytes", "Bytes of the table's files.", "table"),
    _gauge("table_files", "References of partitions to files.", "table"),
    _gauge("table_partitions", "Partitions.", "table"),
    _gauge("table_partition_files_mean", "Files a partition, on average.", "table"),
    _gauge("table_partition_files_max", "Files of the partition that has the most.", "table"),
    _gauge("table_backlog_requests", "Requests that wait to be ingested.", "table"),
    _gauge("table_backlog_files", "Files that wait to be ingested.", "table"),
    _gauge("table_backlog_bytes", "Bytes that wait to be ingested.", "table"),
    _gauge("table_backlog_oldest_seconds", "Age of the oldest request that waits; 0 without one.", "table"),
    _gauge("table_compaction_due_runs", "Runs that compaction would merge now.", "table"),
    _gauge("table_compaction_due_bytes", "Bytes that compaction would read and write now.", "table"),
    _gauge("table_unreadable", "1 while the log of the table cannot be read.", "table"),
    _gauge("table_offline", "1 while the table is offline: neither split nor compacted.", "table"),
    _gauge("table_hook_failures", "Deliveries in a row that failed; of the hook that fails longest.", "table"),
    _gauge(
        "table_hook_lag_versions",
        "Versions whose events a hook of the table has not got yet; of the one that is farthest behind.",
        "table",
    ),
    _gauge("table_publication_lag_versions", "Versions that other engines do not read yet.", "table"),
    _gauge("table_view_lag_versions", "Versions of its source that a view does not have yet.", "table"),
    _gauge("operation_due", "1 while an operation has something to do.", "table", "operation"),
    _gauge("operation_failures", "Failures in a row of an operation.", "table", "operation"),
    _gauge("operation_parked", "1 while an operation waits for lakebed jobs retry.", "table", "operation"),
    _gauge("operation_paused", "1 while an operation is paused.", "table", "operation"),
    _gauge(
        "operation_waiting_seconds",
        "How long an operation has waited for what keeps it from working; 0 if nothing does.",
        "table",
        "operation",
    ),
)
"""Gauges of tables, from the service's memory: no request to the store."""

FOLLOWER_GAUGES = (
    _gauge("follower_following", "1 while a process follows and has no error, here or elsewhere.", "follower"),
    _gauge(
        "follower_lag_seconds",
        "The age of the oldest change that its source has and its tables lack; of a follower that does not run, since "
        "its last record at least.",
        "follower",
    ),
    _gauge("follower_behind", "What its source has beyond its position. unit: bytes, messages.", "follower", "unit"),
    _gauge("follower_changes", "Changes that it has committed since it was created.", "follower"),
    _gauge("follower_dead_letters", "Changes that fit no table, since it was created.", "follower"),
    _gauge("follower_failures", "Failures in a row.", "follower"),
    _gauge("follower_parked", "1 while it waits for lakebed follow resume, or its declaration is damaged.", "follower"),
    _gauge("follower_paused", "1 while it is paused.", "follower"),
)
"""Gauges of the followers of a service with --followers."""

SERVICE_GAUGES = (
    _gauge("build", "1; the label has the version of Lakebed.", "version"),
    _gauge("tables", "Tables of the instance."),
    _gauge("tables_unlabelled", 'Tables that have no label of their own, and are added up as table="(others)".'),
    _gauge("service_start_time_seconds", "When the service started, in seconds since 1970."),
    _gauge("service_maintains", "1 if the service maintains tables, 0 if it only answers."),
    _gauge("service_spark", "1 for the state of the Spark session: none, starting, running, idle.", "state"),
    _gauge("service_work", "Pieces of work under way.", "operation"),
    _gauge("service_catalog_unreadable", "1 while the catalog cannot be read."),
    _gauge("http_requests_active", "HTTP requests that are being answered."),
    _gauge(
        "room_used",
        "Room that is taken. room: answers (bytes that open answers of reads may hold), objects (the same of the S3 "
        "bucket), statements and flight statements (those that run).",
        "room",
    ),
    _gauge("room_capacity", "Room that there is; one principal gets at most three quarters.", "room"),
    _gauge("room_waiting", "Requests that wait for room.", "room"),
    _counter("room_refused_total", "Requests that were refused with 503, since there was no room in time.", "room"),
    _counter(
        "cache_hits_total",
        "Lookups that a cache of this process answered; each of the cache disk saved a request to the store.",
        "cache",
    ),
    _counter("cache_misses_total", "Lookups that it did not.", "cache"),
    _gauge("cache_entries", "Entries of the read cache.", "cache"),
    _gauge("cache_bytes", "Bytes of a cache.", "cache"),
    _counter("cache_saved_bytes_total", "Bytes that were read from the cache and not from the store.", "cache"),
    _counter("scrape_errors_total", "Times that the state of the service could not be collected for /metrics."),
)
"""Gauges of the process, besides its process_* metrics."""

METRICS = (*MEASURED, *TABLE_GAUGES, *FOLLOWER_GAUGES, *SERVICE_GAUGES)
