"""Settings: one table of name, unit, default, bounds and help; validated before anything is stored.

A table's own value wins over the instance's default, which wins over the default here. Only values that differ from
the defaults here are stored. Pure: no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from lakebed.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB = 1024 * 1024
GIB = 1024 * MIB


def _setting(default: float, unit: str, minimum: float, maximum: float, text: str) -> Any:
    return field(default=default, metadata={"unit": unit, "min": minimum, "max": maximum, "help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a table in force. Units are in the names' endings or in :func:`describe`."""

    split_rows: int = _setting(50_000_000, "rows", 2, 10**12, "a leaf with more rows is split")
    split_bytes: int = _setting(4 * GIB, "bytes", 1024, 2**50, "a leaf with more bytes is split")
    join_share: float = _setting(
        0.1,
        "share",
        0.0,
        0.5,
        "neighbouring leaves are joined while they come to at most so much of split_rows and split_bytes; 0: never",
    )
    file_bytes: int = _setting(
        256 * MIB, "bytes", 4096, 4 * GIB, "a data file is cut at about this size; small footers keep point reads quick"
    )
    page_rows: int = _setting(2_000, "rows", 100, 1_000_000, "rows in a data page; a point read decodes one per column")
    page_bytes: int = _setting(128 * 1024, "bytes", 1024, 64 * MIB, "bytes in a data page, if reached before page_rows")
    row_group_rows: int = _setting(1_000_000, "rows", 1_000, 2**30, "rows in a Parquet row group")
    bloom_fpp: float = _setting(
        0.001, "probability", 0.000_001, 0.5, "false positives of the bloom filter on the row key"
    )
    memory_limit_bytes: int = _setting(
        512 * MIB, "bytes", 64 * MIB, 2**40, "memory that one sort or merge may use for rows"
    )
    merge_task_bytes: int = _setting(
        1 * GIB, "bytes", MIB, 2**50, "a compaction with more input is cut into tasks over sub-ranges of keys"
    )
    ingest_bytes_min: int = _setting(
        1 * GIB, "bytes", 0, 2**50, "requests are ingested once the files of all of them have so many bytes"
    )
    ingest_files_min: int = _setting(1, "files", 1, 100_000, "and are so many files")
    ingest_age_s: int = _setting(300, "seconds", 0, 10**9, "or once one of them is as old as this")
    ingest_bytes_max: int = _setting(
        5 * GIB, "bytes", 1, 2**50, "an ingest job takes no more, unless one request alone is larger"
    )
    ingest_files_max: int = _setting(100, "files", 1, 100_000, "an ingest job takes no more, unless of one request")
    ingest_tries_max: int = _setting(3, "tries", 1, 1_000, "a request that failed so often is rejected")
    job_deadline_s: int = _setting(
        6 * 3600,
        "seconds",
        1,
        30 * 86_400,
        "an open job older than this may be closed by anyone; its commit is refused",
    )
    gc_delay_s: int = _setting(900, "seconds", 0, 10**9, "a file is kept this long after its last reference is gone")
    history_s: int = _setting(86_400, "seconds", 0, 10**9, "how far back older states of the table stay readable")
    log_s: int = _setting(
        30 * 86_400,
        "seconds",
        0,
        10**9,
        "how long entries stay in the log; not below history_s and gc_delay_s",
    )
    pin_timeout_s: int = _setting(
        3600, "seconds", 1, 10**9, "a pin that was not renewed for so long is dead; readers renew every third of it"
    )
    orphan_age_s: int = _setting(
        86_400, "seconds", 0, 10**9, "what was written and not committed for so long may be swept, and is refused then"
    )
    requests_s: int = _setting(
        7 * 86_400,
        "seconds",
        0,
        10**9,
        "how long commit and job ids are remembered: a repeat in that time adds nothing",
    )


NAMES = tuple(f.name for f in fields(Settings))


@dataclass(frozen=True, slots=True)
class Described:
    """One row of the table of settings."""

    name: str
    unit: str
    default: int | float
    minimum: int | float
    maximum: int | float
    help: str


def describe() -> list[Described]:
    """Every setting with its unit, default, bounds and help, in the order of the class."""
    return [
        Described(f.name, f.metadata["unit"], f.default, f.metadata["min"], f.metadata["max"], f.metadata["help"])  # type: ignore[arg-type]
        for f in fields(Settings)
    ]


def validate(changes: Mapping[str, Any]) -> dict[str, int | float | None]:
    """The changes as they are stored; None takes a value back. Raises UsageError naming setting, value and bounds."""
    known = {d.name: d for d in describe()}
    valid: dict[str, int | float | None] = {}
    for name, value in changes.items():
        setting = known.get(name)
        if setting is None:
            raise UsageError(f"no setting {name!r}; the settings are: {', '.join(NAMES)}", setting=name)
        valid[name] = None if value is None else _number(setting, value)
    return valid


def _number(setting: Described, value: Any) -> int | float:
    kind = type(setting.default)
    try:
        number = kind(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or (kind is int and number != int(number)):
        raise UsageError(f"{setting.name} is a number of {setting.unit}, not {value!r}", setting=setting.name)
    if not setting.minimum <= number <= setting.maximum:
        raise UsageError(
            f"{setting.name} = {value}: must lie between {setting.minimum} and {setting.maximum} {setting.unit}",
            setting=setting.name,
        )
    return kind(number)


def in_force(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Settings:
    """The settings of a table from the instance's defaults and its own values."""
    return Settings(**{**defaults, **own})
