"""Operators: import files, run SQL that writes, export rows, and maintain tables.

Core types: :class:`LakebedImportOperator`, :class:`LakebedSQLOperator`, :class:`LakebedExportOperator`,
:class:`LakebedMaintainOperator`.

Rules. Work on an instance runs in the worker, in processes of its own or on Spark; work on a service runs there, and a
``deferrable`` operator gives its worker back meanwhile. Whatever is written has an id made of the DAG, the run, the
task and the map index: a task that is tried again, or cleared, adds nothing twice, and joins work that still goes on.
What a task returns is small: counts, versions, URLs. A task that is stopped cancels its work.

Errors: those of Lakebed; AirflowException for work of a service that failed.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

import lakebed
from airflow_lakebed.hooks import LakebedHook
from airflow_lakebed.triggers import QueryTrigger, RequestsTrigger, ServiceTrigger
from lakebed import Pipeline

OPERATIONS = ("maintain", "ingest", "compact", "split", "join_partitions", "refresh", "publish", "gc")
"""What :class:`LakebedMaintainOperator` may do: methods of :class:`lakebed.Pipeline`."""

_QUERIES = uuid.uuid5(uuid.NAMESPACE_URL, "https://airflow.apache.org/lakebed/queries")


class LakebedOperator(BaseOperator):
    """What the operators share: the connection, the id, waiting, and stopping.

    ``commit_id`` is by default made of the DAG, the run, the task and the map index. ``launcher`` says where tasks of a
    :class:`lakebed.Pipeline` run: ``in-process``, ``in-process[4]``, a master of Spark or an ``sc://`` URL.
    """

    template_fields: Sequence[str] = ("lakebed_conn_id", "commit_id")

    def __init__(
        self,
        *,
        lakebed_conn_id: str = LakebedHook.default_conn_name,
        commit_id: str | None = None,
        launcher: str = "in-process",
        deferrable: bool | None = None,
        poll_s: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lakebed_conn_id, self.commit_id = lakebed_conn_id, commit_id
        self.launcher, self.poll_s = launcher, poll_s
        self.deferrable = (
            conf.getboolean("operators", "default_deferrable", fallback=False) if deferrable is None else deferrable
        )
        self._working = False
        self._waiting: ServiceTrigger | None = None

    @property
    def hook(self) -> LakebedHook:
        """The hook of the connection."""
        return LakebedHook(self.lakebed_conn_id)

    def id_of(self, context: Context) -> str:
        """Return the id of what the task writes: the same whenever this task of this run is tried."""
        ti = context["ti"]
        return self.commit_id or f"airflow/{ti.dag_id}/{ti.run_id}/{ti.task_id}/{ti.map_index}"

    def on_kill(self) -> None:
        """Cancel the work of the task: Airflow calls this when the task is stopped, in the thread that works."""
        if (waiting := self._waiting) is not None:
            with self.hook.instance() as lake:
                waiting.cancel(lake)
        if self._working:
            # A pipeline cancels its tasks, and finishes a commit that has begun.
            raise KeyboardInterrupt

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let :meth:`on_kill` interrupt the block."""
        self._working = True
        try:
            yield
        finally:
            self._working = False

    def wait(self, context: Context, lake: Any, trigger: ServiceTrigger) -> Any:
        """Wait for work of a service, without a worker if the operator is deferrable; then :meth:`completed`."""
        if (event := trigger.looked(lake)) is None:
            if self.deferrable:
                self.defer(trigger=trigger, method_name="completed", timeout=self.execution_timeout)
            self._waiting = trigger
            try:
                with self.working():
                    while (event := trigger.looked(lake)) is None:
                        time.sleep(self.poll_s)
            finally:
                self._waiting = None
        return self.completed(context, event)

    def completed(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of work of a service. Raises AirflowException if it failed."""
        if "error" in event:
            raise AirflowException(event["error"])
        return self.result(context) | event

    def result(self, context: Context) -> dict[str, Any]:
        """Return what the result of work of a service has beside what the service says."""
        return {}


class LakebedImportOperator(LakebedOperator):
    """Adds all rows of files to a table; returns ``table``, ``version``, and ``rows`` or ``files``.

    On an instance this is :meth:`lakebed.Pipeline.bulk_import`: one commit, with its ``format``, ``columns``,
    ``casts``, ``ignore_extra`` and ``quarantine``. A service ingests Parquet files, below what it allows as sources,
    and knows each by its URL, size and version: a file that it has ingested is not ingested again.
    """

    template_fields = (*LakebedOperator.template_fields, "table", "source", "quarantine")

    def __init__(
        self,
        *,
        table: str,
        source: str | Sequence[str],
        format: str | None = None,
        columns: Mapping[str, str] | None = None,
        casts: Sequence[str] = (),
        ignore_extra: bool = False,
        quarantine: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table, self.source, self.quarantine = table, source, quarantine
        self.format, self.columns, self.casts, self.ignore_extra = format, columns, casts, ignore_extra

    def execute(self, context: Context) -> dict[str, Any]:
        """Import the files, or submit them to the service and wait."""
        with self.hook.instance() as lake:
            if self.hook.is_service:
                return self._submitted(context, lake)
            with self.working(), Pipeline(lake, launcher=self.launcher, progress=None) as pipeline:
                report = pipeline.bulk_import(
                    self.table,
                    self.source,
                    format=self.format,
                    columns=self.columns,
                    casts=self.casts,
                    ignore_extra=self.ignore_extra,
                    quarantine=self.quarantine,
                    job_id=self.id_of(context),
                )
        self.log.info("%s", report.summary)
        names = ("table", "version", "rows", "rejected", "repeated")
        return {name: getattr(report, name) for name in names}

    def _submitted(self, context: Context, lake: Any) -> dict[str, Any]:
        options = ("format", "columns", "casts", "ignore_extra", "quarantine")
        if given := [name for name in options if getattr(self, name)]:
            raise AirflowException(
                f"{', '.join(given)} with a service: it ingests Parquet files whose columns are those of the table. "
                "Use a connection to the store of the instance"
            )
        report = lake.table(self.table).submit(self.source)
        if old := [file.url for file in report.files if file.standing == "old"]:
            raise AirflowException(
                f"{len(old)} files are so old that they may have been ingested before, the first {old[0]}. Nothing is "
                "added twice: import them by a connection to the store, or write them again under new names"
            )
        if not report.files:
            raise AirflowException(f"no files at {self.source}")
        requests = [file.request for file in report.files]
        trigger = RequestsTrigger(
            lakebed_conn_id=self.lakebed_conn_id, table=self.table, requests=requests, poll_s=self.poll_s
        )
        return self.wait(context, lake, trigger)

    def result(self, context: Context) -> dict[str, Any]:
        """Return the table."""
        return {"table": self.table}


class LakebedSQLOperator(LakebedOperator):
    """Runs statements that write, in order, each one commit; returns the table, version and rows of each.

    Each has the commit id of the task and its number, so that a task that is tried again goes on where it failed. For
    queries whose rows are small use Airflow's ``SQLExecuteQueryOperator``, for others :class:`LakebedExportOperator`.
    """

    template_fields = (*LakebedOperator.template_fields, "sql", "parameters")
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"sql": "sql"}

    def __init__(
        self,
        *,
        sql: str | Sequence[str],
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.sql, self.parameters = sql, parameters

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Run the statements."""
        commit_id = self.id_of(context)
        done = []
        with self.hook.instance() as lake, self.working():
            for number, statement in enumerate([self.sql] if isinstance(self.sql, str) else self.sql):
                report = lake.execute(statement, parameters=self.parameters, commit_id=f"{commit_id}/{number}")
                self.log.info("%s", report.summary)
                names = ("statement", "table", "version", "rows", "repeated")
                done.append({name: getattr(report, name) for name in names})
        return done


class LakebedExportOperator(LakebedOperator):
    """Writes rows of a table, or those of a query in SQL, as files in an empty folder; returns ``url``, ``rows`` and
    ``files``.

    All files are there, or none count: ``_SUCCESS`` is written last. A task that is tried again writes to the same
    folder, and what the one before it left is deleted. On a service this is a submitted query, and ``url`` must be
    below what it allows as sources.
    """

    template_fields = (*LakebedOperator.template_fields, "table", "sql", "url", "where", "at")
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"sql": "sql"}

    def __init__(
        self,
        *,
        url: str,
        table: str | None = None,
        sql: str | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        at: int | str | None = None,
        format: str = "parquet",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (table is None) == (sql is None):
            raise ValueError("an export is of a table or of a query: give table or sql")
        if sql is not None and (where is not None or columns is not None or at is not None):
            raise ValueError("where, columns and at go with table; a query says itself what it reads")
        self.url, self.table, self.sql, self.where, self.at = url, table, sql, where, at
        self.columns, self.format = columns, format

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the files, or have the service write them and wait."""
        with self.hook.instance() as lake:
            if self.hook.is_service:
                return self._submitted(context, lake)
            launcher = self.launcher if self.sql is None else "this-thread"
            with self.working(), Pipeline(lake, launcher=launcher, progress=None) as pipeline:
                report = self._exported(pipeline, self.id_of(context))
        self.log.info("%s", report.summary)
        return {"url": report.url, "rows": report.rows, "files": report.files}

    def _exported(self, pipeline: Pipeline, job_id: str) -> Any:
        if self.sql is not None:
            return pipeline.export_sql(self.sql, self.url, format=self.format, job_id=job_id)
        at = None if self.at is None else pipeline.instance.table(self.table).at(self.at).version
        return pipeline.export(
            self.table, self.url, where=self.where, columns=self.columns, format=self.format, at=at, job_id=job_id
        )

    def _submitted(self, context: Context, lake: Any) -> dict[str, Any]:
        query_id = str(uuid.uuid5(_QUERIES, self.id_of(context)))
        query = self._query(lake, query_id)
        if query.state().state in ("failed", "cancelled"):
            # Of an earlier try.
            query.cancel()
            self._query(lake, query_id)
        return self.wait(
            context, lake, QueryTrigger(lakebed_conn_id=self.lakebed_conn_id, query_id=query_id, poll_s=self.poll_s)
        )

    def _query(self, lake: Any, query_id: str) -> Any:
        to = {"url": self.url, "format": self.format, "query_id": query_id}
        if self.sql is not None:
            return lake.submit_sql(self.sql, **to)
        return lake.submit_scan(self.table, columns=self.columns, where=self.where, at=self.at, **to)

    def result(self, context: Context) -> dict[str, Any]:
        """Return the folder."""
        return {"url": self.url}


class LakebedMaintainOperator(LakebedOperator):
    """Does what is due on some tables, by default on all; returns the version of each after it.

    ``operation`` is ``maintain``, which ingests, compacts, splits, joins, publishes and collects garbage, or one of
    these; with ``compact`` a ``strategy``, such as ``full``. Tables after one that fails are maintained too. A service
    maintains its tables itself.
    """

    template_fields = (*LakebedOperator.template_fields, "tables")

    def __init__(
        self,
        *,
        tables: str | Sequence[str] | None = None,
        operation: str = "maintain",
        strategy: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if operation not in OPERATIONS:
            raise ValueError(f"operation = {operation!r}: must be one of {', '.join(OPERATIONS)}")
        if strategy is not None and operation != "compact":
            raise ValueError(f"strategy = {strategy!r} with {operation}: it goes with compact")
        self.tables, self.operation, self.strategy = tables, operation, strategy

    def execute(self, context: Context) -> dict[str, int]:
        """Maintain the tables, one after the other."""
        if self.hook.is_service:
            raise AirflowException(
                f"connection {self.lakebed_conn_id!r} is to a service, which maintains its tables itself; use one to "
                "the store of the instance, or leave the task out"
            )
        done, errors = {}, {}
        with (
            self.hook.instance() as lake,
            self.working(),
            Pipeline(lake, launcher=self.launcher, progress=None) as pipeline,
        ):
            options = {} if self.strategy is None else {"strategy": self.strategy}
            for name in [self.tables] if isinstance(self.tables, str) else self.tables or lake.tables():
                try:
                    self.log.info("%s", getattr(pipeline, self.operation)(name, **options))
                    done[name] = lake.table(name).version
                except lakebed.Error as error:
                    self.log.exception("%s of %s failed", self.operation, name)
                    errors[name] = error
        if errors:
            first = next(iter(errors.values()))
            raise AirflowException(f"{self.operation} failed for {', '.join(errors)}: {first}") from first
        return done
