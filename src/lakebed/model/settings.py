"""Settings of a table: name, unit, default, bounds or choices or a list of names, and help.

:class:`Settings` has the values in force: a table's own value comes before the instance's default, which comes before
the default here. Only values that a user set are stored, by name.

Rules. Values are validated before they are stored. Dependencies between settings are computed only here
(:attr:`Settings.log_retention_s`), because a default of the instance may change after a table has set its own value. A
stored name that this version does not have is an error, never ignored. Pure: no I/O.

Source: docs/decisions/0041, 0044, 0073; docs/retention.md for the four times.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from lakebed.errors import Code, Error
from lakebed.model.checks import shown
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class Strategy(StrEnum):
    """How compaction chooses runs; the rules are in :mod:`lakebed.upkeep.compaction.strategies`."""

    BASIC = "basic"
    SIZE_RATIO = "size-ratio"
    BY_BYTES = "by-bytes"
    FULL = "full"


class Publish(StrEnum):
    """As what a table is published for other engines (:mod:`lakebed.upkeep.publish`)."""

    NONE = "none"
    ICEBERG = "iceberg"
    ICEBERG_3 = "iceberg-3"


ICEBERG_FORMATS: Mapping[str, Literal[2, 3]] = {Publish.ICEBERG: 2, Publish.ICEBERG_3: 3}
"""The versions of the format of Apache Iceberg as which tables are published."""


class SchemaGrowth(StrEnum):
    """How columns of written rows that are not fields of the table are treated."""

    REFUSE = "refuse"
    ADD = "add"


class Compression(StrEnum):
    """The codec of the pages of data files."""

    ZSTD = "zstd"
    LZ4 = "lz4"
    NONE = "none"


def _setting(default: float, unit: str, minimum: float, maximum: float, text: str) -> Any:
    return field(default=default, metadata={"unit": unit, "min": minimum, "max": maximum, "help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The values in force. Units are in the names' endings or in :func:`describe`."""

    split_rows: int = _setting(50_000_000, "rows", 2, 10**12, "a partition with more rows is split")
    split_bytes: int = _setting(4 * GIB, "bytes", 1024, 2**50, "a partition with more bytes is split")
    join_share: float = _setting(
        0.1,
        "share",
        0.0,
        0.5,
        "neighbouring partitions are joined up to this share of split_rows and split_bytes; 0: never",
    )
    file_bytes: int = _setting(
        256 * MIB, "bytes", 4096, 4 * GIB, "a data file is cut at about this size; small footers keep point reads quick"
    )
    page_rows: int = _setting(1_000, "rows", 100, 1_000_000, "rows in a data page; a point read decodes one per column")
    page_bytes: int = _setting(128 * 1024, "bytes", 1024, 64 * MIB, "bytes in a data page, if reached before page_rows")
    row_group_rows: int = _setting(1_000_000, "rows", 1_000, 2**30, "rows in a Parquet row group")
    bloom_fpp: float = _setting(
        0.001, "probability", 0.000_001, 0.5, "false positives of the bloom filter on the row key"
    )
    bloom_fields: int = _setting(
        0, "fields", 0, 1_000, "the bloom filter of new files is on this many first fields of the row key; 0: all"
    )
    statistics_off: str = field(
        default="",
        metadata={
            "unit": "columns",
            "listed": True,
            "help": "value columns whose minima and maxima new files do not hold, separated by commas; *: all of them",
        },
    )
    compression: Compression = field(
        default=Compression.ZSTD,
        metadata={
            "unit": "name",
            "choices": Compression,
            "help": "the codec of new files; lz4 and none: larger files, which take less CPU to write and to read",
        },
    )
    memory_limit_bytes: int = _setting(
        512 * MIB, "bytes", 64 * MIB, 2**40, "memory that one sort or merge may use for rows"
    )
    value_bytes_max: int = _setting(
        64 * MIB, "bytes", 8192, GIB, "a row whose values take more in memory, alone or together, is refused"
    )
    schema_growth: SchemaGrowth = field(
        default=SchemaGrowth.REFUSE,
        metadata={
            "unit": "name",
            "choices": SchemaGrowth,
            "help": "unknown columns of written rows: refuse them, or add nullable fields for them",
        },
    )
    ingest_bytes_min: int = _setting(
        1 * GIB, "bytes", 0, 2**50, "open requests are ingested once their files have this many bytes in total"
    )
    ingest_age_s: int = _setting(300, "seconds", 0, 10**9, "or once one of them is this old")
    ingest_bytes_max: int = _setting(
        5 * GIB, "bytes", 1, 2**50, "an ingest job takes no more bytes, unless one request alone is larger"
    )
    ingest_tries_max: int = _setting(3, "tries", 1, 1_000, "a request that failed this often is rejected")
    compaction_strategy: Strategy = field(
        default=Strategy.SIZE_RATIO,
        metadata={"unit": "name", "choices": Strategy, "help": "which runs of a partition compaction merges"},
    )
    compaction_batch_runs: int = _setting(12, "runs", 2, 1_000, "basic, size-ratio: runs that one job merges at most")
    compaction_ratio: float = _setting(
        3.0, "times", 0.1, 100, "size-ratio: runs are merged if all but the largest have this many times its bytes"
    )
    compaction_run_bytes: int = _setting(
        1 * GIB, "bytes", 1024, 2**50, "a run of this many bytes in a partition is merged only by full"
    )
    runs_max: int = _setting(
        10_000, "runs", 0, 2**31, "files for a partition with more runs are refused until it is compacted; 0: never"
    )
    job_deadline_s: int = _setting(
        6 * 3600,
        "seconds",
        1,
        30 * 86_400,
        "an open job older than this may be closed by anyone; its commit is refused",
    )
    history_s: int = _setting(
        86_400, "seconds", 0, 10**9, "how long versions stay readable, and the files that only they refer to are kept"
    )
    log_s: int = _setting(
        7 * 86_400,
        "seconds",
        0,
        10**9,
        "how long log entries, commit ids and job ids are kept; or history_s, if that is longer",
    )
    orphan_age_s: int = _setting(
        86_400, "seconds", 0, 10**9, "an object not committed within this time may be deleted, and its commit refused"
    )
    jobs_kept_s: int = _setting(
        7 * 86_400, "seconds", 0, 10**9, "how long records of job runs are kept; the instance's value counts"
    )
    publish: Publish = field(
        default=Publish.NONE,
        metadata={
            "unit": "name",
            "choices": Publish,
            "help": "iceberg: versions are published as an Apache Iceberg table, which keeps their files; "
            "iceberg-3: of format 3, with deletion vectors",
        },
    )

    @property
    def log_retention_s(self) -> int:
        """How long log entries and request keys are kept: at least as long as the versions that need them."""
        return max(self.log_s, self.history_s)

    @property
    def columns_without_statistics(self) -> frozenset[str]:
        """The value columns that :attr:`statistics_off` names; ``*`` stands for all."""
        return frozenset(_listed(self.statistics_off))


_FIELDS = {f.name: f for f in fields(Settings)}
NAMES = tuple(_FIELDS)


@dataclass(frozen=True, slots=True)
class Described:
    """One row of the table of settings: a number between two bounds, one of several names, or a list of columns
    (without bounds and choices).
    """

    name: str
    unit: str
    default: int | float | str
    minimum: int | float | None
    maximum: int | float | None
    choices: tuple[str, ...]
    help: str

    def shown(self, value: float | str) -> str:
        """Return a value with its unit, for people: ``4 GiB``, ``7 d``, ``50,000,000 rows``, ``0.1``, ``zstd``."""
        if isinstance(value, str):
            return value
        amount, unit = self._whole(value)
        return f"{amount:,} {unit or self.unit}" if isinstance(amount, int) else f"{amount:,}"

    def typed(self, value: float | str) -> str:
        """Return a value as it can be set: ``4GiB``, ``7d``, ``50000000``; :func:`validate` gives it back."""
        if isinstance(value, str):
            return value
        amount, unit = self._whole(value)
        return f"{amount}{unit}"

    def _whole(self, value: float) -> tuple[int | float, str]:
        """Return the value as a whole number of its largest unit; without a unit if there is none."""
        units = _FACTORS.get(self.unit, {}) if value == int(value) and value else {}
        fitting = [(factor, unit) for unit, factor in units.items() if factor > 1 and value % factor == 0]
        if not fitting:
            return value, ""
        factor, unit = max(fitting)
        return int(value) // factor, _SPELLED.get(unit, unit)


def describe() -> list[Described]:
    """Return every setting with its unit, default, bounds or choices, and help, in the order of the class."""
    return [
        Described(
            name=f.name,
            unit=f.metadata["unit"],
            default=f.default,  # type: ignore[arg-type]
            minimum=f.metadata.get("min"),
            maximum=f.metadata.get("max"),
            choices=tuple(choice.value for choice in f.metadata.get("choices", ())),
            help=f.metadata["help"],
        )
        for f in fields(Settings)
    ]


def validate(changes: Mapping[str, Any]) -> dict[str, int | float | str | None]:
    """Return the changes as they are stored; None resets a setting to its default.

    Raises UsageError, which names the setting, the value, and the bounds or choices.
    """
    known = {d.name: d for d in describe()}
    valid: dict[str, int | float | str | None] = {}
    for name, value in changes.items():
        setting = known.get(name)
        if setting is None:
            raise Code.SETTING_UNKNOWN(
                f"unknown setting {shown(name)}; settings: {', '.join(NAMES)}{did_you_mean(name, NAMES)}", setting=name
            )
        if value is None:
            valid[name] = None
        else:
            valid[name] = _valid(setting, value)
    return valid


def _valid(setting: Described, value: Any) -> int | float | str:
    if setting.choices:
        return _choice(setting, value)
    return _list(setting, value) if setting.minimum is None else _number(setting, value)


def _listed(text: str) -> list[str]:
    """Return the names of a list that is separated by commas, as a record of CSV: quoted, a name may have a comma."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), []) if name.strip()]


def _list(setting: Described, value: Any) -> str:
    if not isinstance(value, str) or "\n" in value or "\r" in value:
        raise Code.SETTING_INVALID(
            f"{setting.name} must be names of {setting.unit}, separated by commas, not {shown(value)}",
            setting=setting.name,
        )
    return value.strip()


def _choice(setting: Described, value: Any) -> str:
    if not isinstance(value, str) or value not in setting.choices:
        raise Code.SETTING_INVALID(
            f"{setting.name} must be one of {', '.join(setting.choices)}, not {shown(value)}", setting=setting.name
        )
    return str(value)


def _number(setting: Described, value: Any) -> int | float:
    assert setting.minimum is not None
    assert setting.maximum is not None
    kind = float if isinstance(setting.default, float) else int
    try:
        number = _amount(setting, value) if isinstance(value, str) else value
    except (ValueError, OverflowError):
        number = value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise _not_a_number(setting, value)
    # Before the conversion to int, which fails for infinity and NaN.
    if not setting.minimum <= number <= setting.maximum:
        raise Code.SETTING_INVALID(
            f"{setting.name} = {shown(value)}: must lie between {setting.minimum} and {setting.maximum} {setting.unit}",
            setting=setting.name,
        )
    if kind is int and number != int(number):
        raise _not_a_number(setting, value)
    return kind(number)


_EXAMPLES = {"bytes": ", such as 4294967296, 4GiB or 500MB", "seconds": ", such as 3600, 90s, 12h or 7d"}

_AMOUNT = re.compile(r"([+-]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,3})?) *([a-z]*)", re.IGNORECASE)

_FACTORS = {
    "bytes": {
        **{unit: 1000**power for power, unit in enumerate(("b", "kb", "mb", "gb", "tb", "pb"))},
        **{unit: 1024**power for power, unit in enumerate(("kib", "mib", "gib", "tib", "pib"), 1)},
    },
    "seconds": {"s": 1, "min": 60, "h": 3_600, "d": 86_400},
}
"""The units that a text may have after its number, by the unit of the setting."""

_SPELLED = {
    **{f"{letter}b": f"{letter.upper()}B" for letter in "kmgtp"},
    **{f"{letter}ib": f"{letter.upper()}iB" for letter in "kmgtp"},
}


def _amount(setting: Described, text: str) -> int | float:
    """Return the number of a text: ``1e6``, ``4GiB``, ``7d``. Raises ValueError, OverflowError."""
    found = _AMOUNT.fullmatch(text.strip())
    factor = found and ({"": 1} | _FACTORS.get(setting.unit, {})).get(found[2].lower())
    if not found or factor is None:
        raise ValueError(text)
    amount = Fraction(found[1].replace("_", "")) * factor
    return int(amount) if amount.denominator == 1 else float(amount)


def _not_a_number(setting: Described, value: Any) -> Error:
    example = _EXAMPLES.get(setting.unit, "")
    return Code.SETTING_INVALID(
        f"{setting.name} must be a number of {setting.unit}{example}, not {shown(value)}", setting=setting.name
    )


def in_force(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Settings:
    """Return the settings of a table, from the instance's defaults and the table's own values.

    Raises UnsupportedFormatError for a setting or a choice that this version does not have, DamagedError for a value
    that is no number or no text.
    """
    values = {**defaults, **own}
    for name, value in values.items():
        described = _FIELDS.get(name)
        if described is None:
            raise Code.FORMAT_TOO_NEW(
                f"the stored setting {name} is unknown: set by a newer Lakebed; upgrade to use the table"
            )
        if "choices" in described.metadata:
            values[name] = _chosen(name, described.metadata["choices"], value)
        elif type(value) is not type(described.default) and (type(value) is not int or "listed" in described.metadata):
            kind = "text" if "listed" in described.metadata else "number"
            raise Code.SETTING_DAMAGED(
                f"setting {name} is stored as {value!r}, which is not a valid {kind}; set it again"
            )
    return Settings(**values)


def _chosen(name: str, choices: type[StrEnum], value: str) -> StrEnum:
    try:
        return choices(value)
    except ValueError:
        raise Code.FORMAT_TOO_NEW(
            f"{name} is {shown(value)}: set by a newer Lakebed; upgrade to use the table"
        ) from None
