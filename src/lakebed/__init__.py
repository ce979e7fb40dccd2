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
from lakebed.schema import Field, Schema
from lakebed.table import Table
from lakebed.version import VERSION

__version__ = VERSION

__all__ = [
    "BadKeyError",
    "ContentionError",
    "DamagedError",
    "Error",
    "ExistsError",
    "Field",
    "FormatTooNewError",
    "Instance",
    "KeyRange",
    "NotFoundError",
    "NotRetainedError",
    "RejectedError",
    "Schema",
    "SchemaMismatchError",
    "StorageError",
    "Table",
    "UnknownOutcomeError",
    "UnsafeStoreError",
    "UsageError",
    "__version__",
    "create",
    "open",
    "set_state_cache_bytes",
]
