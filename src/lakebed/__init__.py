"""Lakebed: very large tables of keyed rows as sorted Parquet files on object storage, any row found in milliseconds."""

from lakebed.errors import (
    BadKeyError,
    ContentionError,
    DamagedError,
    Error,
    ExistsError,
    FormatTooNewError,
    NotFoundError,
    NotRetainedError,
    RejectedError,
    SchemaMismatchError,
    StorageError,
    UnknownOutcomeError,
    UnsafeStoreError,
    UsageError,
)
from lakebed.instance import Instance, create, open
from lakebed.keys import KeyRange
from lakebed.log.parts import set_state_cache_bytes
from lakebed.query.cache import read_cache_stats, set_read_cache_bytes
from lakebed.query.counting import Count
from lakebed.schema import Field, Generated, Schema
from lakebed.state.evolution import AddField, AllowNulls, DropField, RenameField, WidenField
from lakebed.table import Table
from lakebed.version import VERSION

__version__ = VERSION

__all__ = [
    "AddField",
    "AllowNulls",
    "BadKeyError",
    "ContentionError",
    "Count",
    "DamagedError",
    "DropField",
    "Error",
    "ExistsError",
    "Field",
    "FormatTooNewError",
    "Generated",
    "Instance",
    "KeyRange",
    "NotFoundError",
    "NotRetainedError",
    "RejectedError",
    "RenameField",
    "Schema",
    "SchemaMismatchError",
    "StorageError",
    "Table",
    "UnknownOutcomeError",
    "UnsafeStoreError",
    "UsageError",
    "WidenField",
    "__version__",
    "create",
    "open",
    "read_cache_stats",
    "set_read_cache_bytes",
    "set_state_cache_bytes",
]
