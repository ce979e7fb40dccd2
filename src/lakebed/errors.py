"""What can go wrong, grouped by what the one who handles it would do.

    Error
    |-- UsageError            change the request (also a ValueError)
    |   |-- SchemaMismatchError   the data do not fit the table's schema
    |   `-- BadKeyError           a key or a range that the schema does not allow
    |-- NotFoundError         name something that exists (also a LookupError)
    |-- ExistsError           choose another name
    |-- RejectedError         the table refused the change; read the reason, plan again
    |-- ContentionError       nothing was changed; try again later
    |-- UnknownOutcomeError   it may have been committed: ask again with the same request key
    |-- StorageError          mend the storage: space, permission, network
    |   `-- UnsafeStoreError      use another store: this one breaks the rules that commits rest on
    |-- DamagedError          stored bytes are not those that were written; restore the object it names
    `-- UnsupportedFormatError    upgrade Lakebed; or, if it is older, export with the Lakebed that wrote it

Every error carries a stable ``kind`` for programs, a message that says what, which value and the remedy, and
the facts as attributes (``error.column``, ``error.version`` …) listed in ``error.facts``.
"""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Base of all errors that Lakebed raises on purpose."""

    kind: str = "error"

    def __init__(self, message: str, **facts: Any) -> None:
        # It may quote a value that UTF-8 cannot hold, and is to be printed, logged and sent all the same.
        self.message = message if message.isascii() else message.encode("utf-8", "backslashreplace").decode()
        super().__init__(self.message)
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        """Facts read as attributes; only called when there is no such attribute."""
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders (Spark tasks) with their facts."""
        return _rebuild, (type(self), self.message, self.facts)

    def __str__(self) -> str:
        return self.message


def _rebuild(cls: type[Error], message: str, facts: dict[str, Any]) -> Error:
    return cls(message, **facts)


class UsageError(Error, ValueError):
    """The request cannot mean anything; nothing was read or written."""

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
    """What was asked for is too old: its files, or its log entries, are not kept any more."""

    kind = "not_retained"


class ExistsError(Error):
    """The name is taken."""

    kind = "exists"


class RejectedError(Error):
    """The table state at commit did not allow the change; nothing of it is visible."""

    kind = "rejected"


class ContentionError(Error):
    """Others kept winning the log; nothing was committed and it is safe to try again."""

    kind = "contention"


class UnknownOutcomeError(Error):
    """The store stopped answering while a commit was under way: it may or may not be there."""

    kind = "unknown_outcome"


class StorageError(Error):
    """The store refused or failed: space, permission, network, credentials."""

    kind = "storage"


class UnsafeStoreError(StorageError):
    """The store does not keep create-if-absent, so two writers could both believe that they won."""

    kind = "unsafe_store"


class DamagedError(Error):
    """Bytes read back are not the bytes that were written; ``name`` says which object."""

    kind = "damaged"


class UnsupportedFormatError(Error):
    """Written in a storage format that this version does not read, a newer or an older one."""

    kind = "unsupported_format"


def encode_error(error: BaseException) -> dict[str, Any]:
    """An error for another process, as JSON: class, message and those facts that JSON can hold.

    What is not Lakebed's own is named in the text.
    """
    if isinstance(error, Error):
        facts = {name: fact for name, fact in error.facts.items() if isinstance(fact, str | int | float | list | None)}
        return {"class": type(error).__name__, "message": error.message, "facts": facts}
    return {"class": "Error", "message": f"{type(error).__name__}: {error}", "facts": {}}


def decode_error(document: Any) -> Error:
    """The inverse of :func:`encode_error`."""
    found = globals().get(document["class"], Error)
    cls: type[Error] = found if isinstance(found, type) and issubclass(found, Error) else Error
    return cls(document["message"], **document["facts"])
