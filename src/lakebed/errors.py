"""Error classes, grouped by how a caller reacts.

    Error
    |-- UsageError            change the request (also a ValueError)
    |   |-- SchemaMismatchError   change the data, or the schema
    |   `-- BadKeyError           change the key or the key range
    |-- NotFoundError         name something that exists (also a LookupError)
    |   `-- NotRetainedError      read a version that is retained
    |-- ExistsError           choose another name
    |-- RejectedError         read the table again, then repeat the request
    |-- ContentionError       nothing was changed; try again later
    |-- UnknownOutcomeError   it may have been committed: repeat it with the same request key
    |-- StorageError          repair the storage: space, permission, network
    |   `-- UnsafeStoreError      use another store: this one breaks the rules that commits rest on
    |-- DamagedError          stored bytes are not those that were written; restore the object
    `-- UnsupportedFormatError    upgrade Lakebed, or export with the Lakebed that wrote it

Core types: :class:`Code` is the cause of an error, :class:`Facts` are the values that it carries. Every error has a
message (what happened, with which value, what to do), a ``code``, the ``kind`` of its class, and facts that read as
attributes (``error.table``, ``error.version``).

Rules: a code is never removed, renamed or given another meaning, and belongs to one class. ``docs/errors.md`` describes
each code and its remedy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from traceback import FrameSummary
    from typing import Self, Unpack


class Code(StrEnum):
    """The cause of an error, for programs; ``group`` is the kind of the class that carries it. Append-only."""

    group: str

    def __new__(cls, code: str, group: str = "") -> Self:
        """Return a member: its stable text, and the kind of its class."""
        self = str.__new__(cls, code)
        self._value_, self.group = code, group
        return self

    def __call__(self, message: str, **facts: Unpack[Facts]) -> Error:
        """Return the error, of the class of its group: ``raise Code.TABLE_NOT_FOUND("…", table=name)``."""
        return _CLASSES[self.group](message, code=self, **facts)

    # UsageError
    ARGUMENT_INVALID = "argument_invalid", "usage"
    ARGUMENT_MISSING = "argument_missing", "usage"
    ARGUMENTS_CONFLICT = "arguments_conflict", "usage"
    COMMAND_LINE_INVALID = "command_line_invalid", "usage"
    CONFIRMATION_MISSING = "confirmation_missing", "usage"
    NAME_INVALID = "name_invalid", "usage"
    OBJECT_NAME_INVALID = "object_name_invalid", "usage"
    URL_INVALID = "url_invalid", "usage"
    URL_HAS_CREDENTIALS = "url_has_credentials", "usage"
    URL_SCHEME_UNKNOWN = "url_scheme_unknown", "usage"
    OPTION_UNKNOWN = "option_unknown", "usage"
    SETTING_UNKNOWN = "setting_unknown", "usage"
    SETTING_INVALID = "setting_invalid", "usage"
    SCHEMA_INVALID = "schema_invalid", "usage"
    TYPE_INVALID = "type_invalid", "usage"
    TYPE_UNSUPPORTED = "type_unsupported", "usage"
    COLUMN_UNKNOWN = "column_unknown", "usage"
    COLUMN_DUPLICATE = "column_duplicate", "usage"
    GENERATED_FIELD_INVALID = "generated_field_invalid", "usage"
    REQUEST_INVALID = "request_invalid", "usage"
    SQL_INVALID = "sql_invalid", "usage"
    SQL_READ_ONLY = "sql_read_only", "usage"
    SQL_TOO_COMPLEX = "sql_too_complex", "usage"
    PREDICATE_INVALID = "predicate_invalid", "usage"
    EXPRESSION_FAILED = "expression_failed", "usage"
    MERGE_MODE_INVALID = "merge_mode_invalid", "usage"
    MERGE_MODE_MISMATCH = "merge_mode_mismatch", "usage"
    MERGE_FUNCTION_MISSING = "merge_function_missing", "usage"
    MERGE_FUNCTION_FAILED = "merge_function_failed", "usage"
    FILTER_INVALID = "filter_invalid", "usage"
    STATEMENT_LIMIT_EXCEEDED = "statement_limit_exceeded", "usage"
    ALREADY_CLOSED = "already_closed", "usage"
    ANSWER_LIMIT_EXCEEDED = "answer_limit_exceeded", "usage"
    SOURCE_DUPLICATE = "source_duplicate", "usage"
    SOURCE_UNSUPPORTED = "source_unsupported", "usage"
    SOURCE_NOT_SORTED = "source_not_sorted", "usage"
    SOURCE_POSITION_LOST = "source_position_lost", "usage"
    FORMAT_UNKNOWN = "format_unknown", "usage"
    FOLDER_NOT_EMPTY = "folder_not_empty", "usage"
    LOG_URL_MISMATCH = "log_url_mismatch", "usage"
    LOG_URL_UNTRUSTED = "log_url_untrusted", "usage"
    CREDENTIALS_UNREADABLE = "credentials_unreadable", "usage"
    PACKAGE_MISSING = "package_missing", "usage"
    LAKEBED_VERSION_MISMATCH = "lakebed_version_mismatch", "usage"
    WORKER_NOT_STARTED = "worker_not_started", "usage"
    PROCESS_FORKED = "process_forked", "usage"
    REMOTE_UNSUPPORTED = "remote_unsupported", "usage"
    INSTANCE_IN_MEMORY = "instance_in_memory", "usage"
    SPARK_REQUIRED = "spark_required", "usage"
    SPARK_NOT_STARTED = "spark_not_started", "usage"
    JAVA_MISSING = "java_missing", "usage"
    SPARK_MODE_UNSUPPORTED = "spark_mode_unsupported", "usage"
    TABLE_CHANGED = "table_changed", "usage"
    AUTHENTICATION_MISSING = "authentication_missing", "usage"
    ROLE_INVALID = "role_invalid", "usage"
    COMMIT_SERVICE_MISMATCH = "commit_service_mismatch", "usage"
    NOT_PUBLISHED = "not_published", "usage"

    # SchemaMismatchError
    COLUMN_MISSING = "column_missing", "schema_mismatch"
    COLUMN_UNEXPECTED = "column_unexpected", "schema_mismatch"
    COLUMN_TYPE_MISMATCH = "column_type_mismatch", "schema_mismatch"
    VALUE_NULL = "value_null", "schema_mismatch"
    VALUE_INVALID = "value_invalid", "schema_mismatch"
    VALUE_NOT_REPRESENTABLE = "value_not_representable", "schema_mismatch"
    GENERATED_VALUE_MISMATCH = "generated_value_mismatch", "schema_mismatch"
    AGGREGATE_TOO_LARGE = "aggregate_too_large", "schema_mismatch"
    ROW_TOO_LARGE = "row_too_large", "schema_mismatch"
    PAGE_TOO_LARGE = "page_too_large", "schema_mismatch"
    BATCH_TOO_LARGE = "batch_too_large", "schema_mismatch"
    REQUEST_FAILED = "request_failed", "schema_mismatch"
    SOURCE_CHANGE_UNSUPPORTED = "source_change_unsupported", "schema_mismatch"
    SOURCE_UNPARSABLE = "source_unparsable", "schema_mismatch"
    SOURCE_NOT_ATTACHABLE = "source_not_attachable", "schema_mismatch"

    # BadKeyError
    KEY_TYPE_MISMATCH = "key_type_mismatch", "bad_key"
    KEY_NULL = "key_null", "bad_key"
    KEY_LENGTH_MISMATCH = "key_length_mismatch", "bad_key"
    KEY_TOO_LONG = "key_too_long", "bad_key"
    KEY_NOT_REPRESENTABLE = "key_not_representable", "bad_key"
    KEY_UNPARSABLE = "key_unparsable", "bad_key"
    KEY_RANGE_INVALID = "key_range_invalid", "bad_key"
    KEY_COLUMN_MISSING = "key_column_missing", "bad_key"

    # NotFoundError
    INSTANCE_NOT_FOUND = "instance_not_found", "not_found"
    TABLE_NOT_FOUND = "table_not_found", "not_found"
    INDEX_NOT_READ = "index_not_read", "not_found"
    NAMESPACE_NOT_FOUND = "namespace_not_found", "not_found"
    VERSION_NOT_FOUND = "version_not_found", "not_found"
    TAG_NOT_FOUND = "tag_not_found", "not_found"
    HOOK_NOT_FOUND = "hook_not_found", "not_found"
    QUERY_NOT_FOUND = "query_not_found", "not_found"
    REQUEST_NOT_FOUND = "request_not_found", "not_found"
    SOURCE_NOT_FOUND = "source_not_found", "not_found"
    JOB_NOT_FOUND = "job_not_found", "not_found"
    OBJECT_NOT_FOUND = "object_not_found", "not_found"
    DATA_FILE_MISSING = "data_file_missing", "not_found"
    TIME_NOT_REACHED = "time_not_reached", "not_found"
    STREAM_TABLE_REPLACED = "stream_table_replaced", "not_found"
    ROLE_NOT_FOUND = "role_not_found", "not_found"
    TOKEN_NOT_FOUND = "token_not_found", "not_found"

    # NotRetainedError
    VERSION_NOT_RETAINED = "version_not_retained", "not_retained"
    ENTRY_NOT_RETAINED = "entry_not_retained", "not_retained"
    DATA_FILE_NOT_RETAINED = "data_file_not_retained", "not_retained"
    STREAM_NOT_RETAINED = "stream_not_retained", "not_retained"

    # ExistsError
    INSTANCE_EXISTS = "instance_exists", "exists"
    TABLE_EXISTS = "table_exists", "exists"
    EXPORT_TARGET_NOT_EMPTY = "export_target_not_empty", "exists"
    QUARANTINE_IN_USE = "quarantine_in_use", "exists"
    ROLE_EXISTS = "role_exists", "exists"
    FOLLOWER_EXISTS = "follower_exists", "exists"

    # RejectedError
    PROPOSAL_OUTDATED = "proposal_outdated", "rejected"
    PROPOSAL_INVALID = "proposal_invalid", "rejected"
    TABLE_DROPPED = "table_dropped", "rejected"
    JOB_NOT_OPEN = "job_not_open", "rejected"
    JOB_CONFLICT = "job_conflict", "rejected"
    LIMIT_REACHED = "limit_reached", "rejected"
    REQUEST_NOT_OPEN = "request_not_open", "rejected"
    FILE_ALREADY_ADDED = "file_already_added", "rejected"
    FILE_TOO_OLD = "file_too_old", "rejected"
    WRITE_TOO_OLD = "write_too_old", "rejected"
    RANGE_REMOVED = "range_removed", "rejected"
    RETAINED_BY_TAG = "retained_by_tag", "rejected"
    SCHEMA_CHANGED = "schema_changed", "rejected"
    SCHEMA_CHANGE_REJECTED = "schema_change_rejected", "rejected"
    MERGE_CHANGED = "merge_changed", "rejected"
    MERGE_CHANGE_REJECTED = "merge_change_rejected", "rejected"
    FILTER_CHANGE_REJECTED = "filter_change_rejected", "rejected"
    VIEW_READ_ONLY = "view_read_only", "rejected"
    VIEW_NOT_FED = "view_not_fed", "rejected"
    INDEX_EXISTS = "index_exists", "rejected"
    INDEX_UNFIT = "index_unfit", "rejected"
    KEYS_CHANGED = "keys_changed", "rejected"
    BATCH_CHANGED = "batch_changed", "rejected"
    TAG_EXISTS = "tag_exists", "rejected"
    TAG_MISSING = "tag_missing", "rejected"
    TAG_VERSION_DELETED = "tag_version_deleted", "rejected"
    ORPHANS_DOUBTFUL = "orphans_doubtful", "rejected"
    ROWS_NOT_ERASED = "rows_not_erased", "rejected"
    JOB_NOT_PARKED = "job_not_parked", "rejected"
    ROWS_NOT_MERGED = "rows_not_merged", "rejected"
    FILE_NOT_PUBLISHABLE = "file_not_publishable", "rejected"
    SETTING_REJECTED = "setting_rejected", "rejected"

    # AccessError
    NOT_AUTHENTICATED = "not_authenticated", "access"
    PERMISSION_MISSING = "permission_missing", "access"
    POLICY_FAILED = "policy_failed", "access"
    ATTEMPTS_EXCEEDED = "attempts_exceeded", "access"
    SOURCE_NOT_ALLOWED = "source_not_allowed", "access"

    # ContentionError
    COMMIT_CONTENDED = "commit_contended", "contention"
    COMMIT_QUEUE_FULL = "commit_queue_full", "contention"
    RUNS_MAX_EXCEEDED = "runs_max_exceeded", "contention"
    PIN_CONTENDED = "pin_contended", "contention"
    PUBLICATION_CONTENDED = "publication_contended", "contention"
    SERVICE_BUSY = "service_busy", "contention"
    SOURCE_BUSY = "source_busy", "contention"

    # UnknownOutcomeError
    COMMIT_UNKNOWN = "commit_unknown", "unknown_outcome"
    COMMIT_ID_TOO_OLD = "commit_id_too_old", "unknown_outcome"
    REPORT_NOT_WRITTEN = "report_not_written", "unknown_outcome"

    # StorageError
    STORE_UNAVAILABLE = "store_unavailable", "storage"
    STORE_REFUSED = "store_refused", "storage"
    STORE_PERMISSION = "store_permission", "storage"
    STORE_CREDENTIALS = "store_credentials", "storage"
    STORE_NOT_FOUND = "store_not_found", "storage"
    STORE_FULL = "store_full", "storage"
    SERVICE_UNREACHABLE = "service_unreachable", "storage"
    TRANSFER_INTERRUPTED = "transfer_interrupted", "storage"
    PUT_UNCLEAR = "put_unclear", "storage"
    OBJECT_TOO_LARGE = "object_too_large", "storage"
    LOG_TRUNCATED = "log_truncated", "storage"
    CHECKPOINT_NOT_WRITTEN = "checkpoint_not_written", "storage"
    EXPORT_INCOMPLETE = "export_incomplete", "storage"
    SOURCE_UNREADABLE = "source_unreadable", "storage"
    SOURCE_CHANGED = "source_changed", "storage"
    OUTPUT_NOT_WRITTEN = "output_not_written", "storage"
    TEMPORARY_STORAGE_FAILED = "temporary_storage_failed", "storage"
    MEMORY_LIMIT_EXCEEDED = "memory_limit_exceeded", "storage"
    COMMIT_SERVICE_UNREACHABLE = "commit_service_unreachable", "storage"

    # UnsafeStoreError
    CREATE_NOT_EXCLUSIVE = "create_not_exclusive", "unsafe_store"
    TRUNCATION_UNSUPPORTED = "truncation_unsupported", "unsafe_store"
    COMMITS_NOT_DURABLE = "commits_not_durable", "unsafe_store"

    # DamagedError
    INSTANCE_DAMAGED = "instance_damaged", "damaged"
    ENTRY_DAMAGED = "entry_damaged", "damaged"
    ENTRY_MISSING = "entry_missing", "damaged"
    LOG_WENT_BACK = "log_went_back", "damaged"
    SIDECAR_DAMAGED = "sidecar_damaged", "damaged"
    CHECKPOINT_DAMAGED = "checkpoint_damaged", "damaged"
    LOG_START_DAMAGED = "log_start_damaged", "damaged"
    TRANSACTION_IMPOSSIBLE = "transaction_impossible", "damaged"
    STATE_INCONSISTENT = "state_inconsistent", "damaged"
    SETTING_DAMAGED = "setting_damaged", "damaged"
    OBJECT_DAMAGED = "object_damaged", "damaged"
    DATA_FILE_DAMAGED = "data_file_damaged", "damaged"
    PAGE_DAMAGED = "page_damaged", "damaged"
    SUMMARY_DAMAGED = "summary_damaged", "damaged"
    PIN_DAMAGED = "pin_damaged", "damaged"
    DOCUMENT_DAMAGED = "document_damaged", "damaged"
    STORED_TEXT_INVALID = "stored_text_invalid", "damaged"
    ROW_COUNT_MISMATCH = "row_count_mismatch", "damaged"
    SOURCE_DAMAGED = "source_damaged", "damaged"
    TABLE_DAMAGED = "table_damaged", "damaged"
    PUBLICATION_DAMAGED = "publication_damaged", "damaged"
    PUBLICATION_FOREIGN = "publication_foreign", "damaged"

    # UnsupportedFormatError
    FORMAT_TOO_NEW = "format_too_new", "unsupported_format"
    FORMAT_TOO_OLD = "format_too_old", "unsupported_format"

    # Error
    QUERY_MEMORY_EXCEEDED = "query_memory_exceeded", "error"
    QUERY_FAILED = "query_failed", "error"
    ENGINE_PANICKED = "engine_panicked", "error"
    STATEMENT_KILLED = "statement_killed", "error"
    MERGE_FAILED = "merge_failed", "error"
    ROWS_LOST = "rows_lost", "error"
    SPARK_FAILED = "spark_failed", "error"
    WORKER_KILLED = "worker_killed", "error"
    WORKER_FAILED = "worker_failed", "error"
    HOOK_FAILED = "hook_failed", "error"
    INTERNAL_ERROR = "internal_error", "error"
    INVARIANT_VIOLATED = "invariant_violated", "error"
    FOREIGN_ERROR = "foreign_error", "error"


class Facts(TypedDict, total=False):
    """The values that errors carry: one name and one type for each, in all errors."""

    attempts: int
    base_version: int
    boundaries: int
    column: str
    columns: Sequence[str]
    earliest_retained_version: int
    errno: int | None
    exit_code: int
    expected: str | None
    extra: str
    fields: Sequence[str]
    file: str
    folder: str
    format: str
    found: str | None
    job: str
    levels_max: int
    log: str
    log_url: str | None
    memory_limit_bytes: int | None
    method: str | None
    module: str
    name: str
    option: str
    options: Sequence[str]
    partition: int
    partition_rows: int
    partitions: int
    path: str
    permission: str
    place: str
    query: str
    reached_bytes: int | None
    reason: str
    request: str
    request_watermark: int
    requests_open: int
    row: int
    row_group: int
    rows: int
    runs: int
    runs_max: int
    scheme: str
    setting: str
    sidecar: str
    size_bytes: int
    source: str
    status: int | None
    storage_format: int
    strategy: str
    table: str
    tag: str
    transient: bool
    url: str
    version: int
    timeout_s: float | None
    waiting: int
    where: str


class Error(Exception):
    """Base of all errors that Lakebed raises on purpose."""

    kind: str = "error"

    def __init__(self, message: str, *, code: Code, **facts: Unpack[Facts]) -> None:
        # A message may quote a value that UTF-8 cannot encode, but must be printable.
        self.message = message if message.isascii() else message.encode("utf-8", "backslashreplace").decode()
        super().__init__(self.message)
        self.code = code
        self.facts: Facts = facts

    def __getattr__(self, name: str) -> Any:
        """Return a fact as an attribute; only called when there is no such attribute."""
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def restated(self, message: str, **facts: Unpack[Facts]) -> Self:
        """Return the same error with another message, and more facts.

        Raise it ``from error.__cause__``: a trace that has both shows the same twice.
        """
        merged: Facts = {**self.facts, **facts}
        return type(self)(message, code=self.code, **merged)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders (Spark tasks) with their facts."""
        return _rebuild, (type(self), self.message, self.code, self.facts)

    def __str__(self) -> str:
        return self.message

    def _render_traceback_(self) -> list[str]:
        """Return what IPython and notebooks show of the error: its message, under the lines of its user's own code."""
        lines = [_trace_line(frame) for frame in extract_tb(self.__traceback__) if not _is_installed(frame.filename)]
        return [*lines, f"{type(self).__name__}: {self.message}"]


def _is_installed(path: str) -> bool:
    """Return whether a file is one of Lakebed, of Python or of an installed package, such as IPython."""
    return path.startswith(_OWN_FOLDERS) or any(folder in path for folder in _PACKAGE_FOLDERS)


def _trace_line(frame: FrameSummary) -> str:
    """Return a line of a trace; IPython knows a cell by another name than that of its file."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    names = shell.compile.format_code_name(frame.filename) if shell else None
    place = " ".join(names) if names else f'File "{frame.filename}"'
    return f"{place}, line {frame.lineno}, in {frame.name}\n    {frame.line}"


_PACKAGE_FOLDERS = ("/site-packages/", "/dist-packages/", "/IPython/")
_OWN_FOLDERS = (__file__.removesuffix("errors.py"), os.__file__.removesuffix("os.py"))


def _rebuild(cls: type[Error], message: str, code: Code, facts: Facts) -> Error:
    return cls(message, code=code, **facts)


class UsageError(Error, ValueError):
    """The request is invalid; nothing was read or written."""

    kind = "usage"


class SchemaMismatchError(UsageError):
    """Rows that do not fit the schema; names the column, both types and where the rows came from."""

    kind = "schema_mismatch"


class BadKeyError(UsageError):
    """A key value, key or range that the schema does not allow."""

    kind = "bad_key"


class NotFoundError(Error, LookupError):
    """No instance, table, file or job of that name."""

    kind = "not_found"


class NotRetainedError(NotFoundError):
    """The requested version is too old: its files, or its log entries, are no longer retained."""

    kind = "not_retained"


class ExistsError(Error):
    """The name is taken."""

    kind = "exists"


class RejectedError(Error):
    """The table state at commit did not allow the change; nothing of it is visible."""

    kind = "rejected"


class AccessError(Error):
    """A service could not authenticate the caller, or does not permit the request to that principal."""

    kind = "access"


class ContentionError(Error):
    """Other writers won every attempt; nothing was committed, and a retry is safe."""

    kind = "contention"


class UnknownOutcomeError(Error):
    """The store stopped responding during a commit, which may or may not have been made."""

    kind = "unknown_outcome"


class StorageError(Error):
    """The store refused or failed: space, permission, network, credentials."""

    kind = "storage"


class UnsafeStoreError(StorageError):
    """The store does not honour create-if-absent, so two writers could both commit the same version."""

    kind = "unsafe_store"


class DamagedError(Error):
    """Bytes read back are not the bytes that were written; ``name`` is the object."""

    kind = "damaged"


class UnsupportedFormatError(Error):
    """Written in a storage format that this version does not read, a newer or an older one."""

    kind = "unsupported_format"


_CLASSES: dict[str, type[Error]] = {
    cls.kind: cls for cls in list(globals().values()) if isinstance(cls, type) and issubclass(cls, Error)
}


def error_of_kind(kind: str, message: str) -> Error:
    """Return an error by its kind, for a code that this version does not have."""
    return _CLASSES.get(kind, Error)(message, code=Code.FOREIGN_ERROR)


def encode_error(error: BaseException) -> dict[str, Any]:
    """Return an error for another process, as JSON: class, code, message and those facts that JSON can hold.

    The message of an error that is not Lakebed's own begins with the name of its class.
    """
    if isinstance(error, Error):
        facts = {name: fact for name, fact in error.facts.items() if isinstance(fact, str | int | float | list | None)}
        return {"class": type(error).__name__, "code": error.code, "message": error.message, "facts": facts}
    message = f"{type(error).__name__}: {error}"
    return {"class": "Error", "code": Code.FOREIGN_ERROR, "message": message, "facts": {}}


def decode_error(document: Any) -> Error:
    """Return the inverse of :func:`encode_error`."""
    cls = next((one for one in _CLASSES.values() if one.__name__ == document["class"]), Error)
    return cls(document["message"], code=Code(document["code"]), **document["facts"])
