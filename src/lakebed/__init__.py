"""Lakebed: very large tables of keyed rows as sorted Parquet files on object storage, any row found in milliseconds.

Errors are imported at once; other public names are imported on first use, with the libraries that they need. ``open``
is not in ``__all__``, so that ``from lakebed import *`` does not shadow the built-in; nor is what IPython calls.
"""

import sys as _sys
from typing import TYPE_CHECKING

try:
    import fcntl as _fcntl  # noqa: F401 - what every POSIX system has, and Windows has not
except ImportError as _missing:
    raise ImportError(
        "Lakebed runs on Linux and macOS, and this Python is for another system: it has no module fcntl. On Windows "
        "use WSL: run `wsl --install`, then install Python and Lakebed inside it"
    ) from _missing

from lakebed.errors import (
    AccessError,
    BadKeyError,
    ContentionError,
    DamagedError,
    Error,
    ExistsError,
    NotFoundError,
    NotRetainedError,
    RejectedError,
    SchemaMismatchError,
    StorageError,
    UnknownOutcomeError,
    UnsafeStoreError,
    UnsupportedFormatError,
    UsageError,
)
from lakebed.model.public_names import MovedModules, lazy_names
from lakebed.model.version import VERSION

if TYPE_CHECKING:
    from lakebed.engine.statement_parameters import sql_literal
    from lakebed.files.parquet.read_cache import read_cache_stats, set_read_cache_bytes
    from lakebed.jobs.distributed_write import DistributedWrite, SentRows
    from lakebed.jobs.executor import Launcher
    from lakebed.jobs.job_progress import Progress
    from lakebed.jobs.pipeline import Pipeline
    from lakebed.jobs.worker_pool import InProcess
    from lakebed.log.segments import set_state_cache_bytes
    from lakebed.model.findings import Deep
    from lakebed.model.keys import KeyRange
    from lakebed.model.merge_modes import Aggregate, Custom, First, KeepAll, Latest
    from lakebed.model.notebook_extension import load_ipython_extension as load_ipython_extension
    from lakebed.model.notebook_extension import unload_ipython_extension as unload_ipython_extension
    from lakebed.model.row_filters import AgeOff, SetFilter
    from lakebed.model.schema import Field, Generated, Schema
    from lakebed.model.state.transactions.merge_changes import SetMerge
    from lakebed.model.state.transactions.schema_changes import AddField, AllowNulls, DropField, RenameField, WidenField
    from lakebed.read.rows.counting import Count
    from lakebed.server.service.service import Service
    from lakebed.server.service.store_status import status
    from lakebed.table.client.connect import connect
    from lakebed.table.instance import Instance
    from lakebed.table.opening import create
    from lakebed.table.opening import open as open
    from lakebed.table.table import Table

__version__ = VERSION

__all__ = [
    "AccessError",
    "AddField",
    "AgeOff",
    "Aggregate",
    "AllowNulls",
    "BadKeyError",
    "ContentionError",
    "Count",
    "Custom",
    "DamagedError",
    "Deep",
    "DistributedWrite",
    "DropField",
    "Error",
    "ExistsError",
    "Field",
    "First",
    "Generated",
    "InProcess",
    "Instance",
    "KeepAll",
    "KeyRange",
    "Latest",
    "Launcher",
    "NotFoundError",
    "NotRetainedError",
    "Pipeline",
    "Progress",
    "RejectedError",
    "RenameField",
    "Schema",
    "SchemaMismatchError",
    "SentRows",
    "Service",
    "SetFilter",
    "SetMerge",
    "StorageError",
    "Table",
    "UnknownOutcomeError",
    "UnsafeStoreError",
    "UnsupportedFormatError",
    "UsageError",
    "WidenField",
    "__version__",
    "connect",
    "create",
    "read_cache_stats",
    "set_read_cache_bytes",
    "set_state_cache_bytes",
    "sql_literal",
    "status",
]

_HOMES = {
    "AddField": "lakebed.model.state.transactions.schema_changes",
    "AgeOff": "lakebed.model.row_filters",
    "Aggregate": "lakebed.model.merge_modes",
    "AllowNulls": "lakebed.model.state.transactions.schema_changes",
    "Count": "lakebed.read.rows.counting",
    "Custom": "lakebed.model.merge_modes",
    "Deep": "lakebed.model.findings",
    "DistributedWrite": "lakebed.jobs.distributed_write",
    "DropField": "lakebed.model.state.transactions.schema_changes",
    "Field": "lakebed.model.schema",
    "First": "lakebed.model.merge_modes",
    "Generated": "lakebed.model.schema",
    "InProcess": "lakebed.jobs.worker_pool",
    "Instance": "lakebed.table.instance",
    "KeepAll": "lakebed.model.merge_modes",
    "KeyRange": "lakebed.model.keys",
    "Latest": "lakebed.model.merge_modes",
    "Launcher": "lakebed.jobs.executor",
    "Pipeline": "lakebed.jobs.pipeline",
    "Progress": "lakebed.jobs.job_progress",
    "RenameField": "lakebed.model.state.transactions.schema_changes",
    "Schema": "lakebed.model.schema",
    "SentRows": "lakebed.jobs.distributed_write",
    "Service": "lakebed.server.service.service",
    "SetFilter": "lakebed.model.row_filters",
    "SetMerge": "lakebed.model.state.transactions.merge_changes",
    "Table": "lakebed.table.table",
    "WidenField": "lakebed.model.state.transactions.schema_changes",
    "connect": "lakebed.table.client.connect",
    "create": "lakebed.table.opening",
    "load_ipython_extension": "lakebed.model.notebook_extension",
    "open": "lakebed.table.opening",
    "read_cache_stats": "lakebed.files.parquet.read_cache",
    "set_read_cache_bytes": "lakebed.files.parquet.read_cache",
    "set_state_cache_bytes": "lakebed.log.segments",
    "sql_literal": "lakebed.engine.statement_parameters",
    "status": "lakebed.server.service.store_status",
    "unload_ipython_extension": "lakebed.model.notebook_extension",
}
"""The module of each name that is imported on first use."""

_MOVED = {
    "lakebed.adapters": "lakebed.read.adapters",
    "lakebed.changes": "lakebed.read.changes",
    "lakebed.client": "lakebed.table.client",
    "lakebed.drawing": "lakebed.read.drawing",
    "lakebed.export": "lakebed.upkeep.export",
    "lakebed.flight": "lakebed.server.flight",
    "lakebed.formats": "lakebed.files.formats",
    "lakebed.ingest": "lakebed.write",
    "lakebed.inspect": "lakebed.read.inspect",
    "lakebed.maintenance": "lakebed.upkeep",
    "lakebed.merging": "lakebed.files.merging",
    "lakebed.migration": "lakebed.upkeep.migration",
    "lakebed.monitoring": "lakebed.server.monitoring",
    "lakebed.parquet": "lakebed.files.parquet",
    "lakebed.retention": "lakebed.upkeep.retention",
    "lakebed.security": "lakebed.server.security",
    "lakebed.service": "lakebed.server.service",
    "lakebed.settings": "lakebed.model.settings",
    "lakebed.snapshot": "lakebed.read.snapshot",
    "lakebed.sorting": "lakebed.files.sorting",
    "lakebed.sql": "lakebed.read.sql",
    "lakebed.state": "lakebed.model.state",
    "lakebed.tracker": "lakebed.table.tracker",
    "lakebed.web": "lakebed.server.web",
}
"""Packages that moved, by their old names."""

_sys.meta_path.insert(0, MovedModules(_MOVED))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})


if not TYPE_CHECKING:  # otherwise a type checker would accept any name
    __getattr__ = lazy_names(__name__, _HOMES)
