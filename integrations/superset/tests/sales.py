"""The rows of the table ``sales``: a column of each kind, and nulls."""

import datetime as dt
import uuid
from decimal import Decimal

COUNT = 1000
KINDS = {
    "shop": "string", "price": "decimal128(10, 2)", "at": "timestamp[us]", "sold": "timestamp[us, tz=UTC]",
    "there": "timestamp[ns, tz=Europe/Berlin]", "day": "date32[day]", "time": "time64[us]", "tags": "list<string>",
    "spot": "struct<x: double, y: double>", "fresh": "bool", "amount": "double", "ref": "uuid", "doc": "json",
    "raw": "binary", "small": "int8", "hash": "uint64", "kind": "dictionary<string>",
    "vector": "fixed_size_list<float>[2]",
}  # fmt: skip


def row(number):
    """A row of ``sales``; each seventh has nulls alone."""
    at = dt.datetime(2026, 1, 1) + dt.timedelta(hours=7 * number, seconds=number)  # noqa: DTZ001 - `at` has no zone
    moment = at.replace(tzinfo=dt.UTC)
    values = {
        "shop": ("oslo", "rome", "it's")[number % 3], "price": Decimal(number) / 4, "at": at, "sold": moment,
        "there": moment, "day": at.date(), "time": at.time(), "tags": ["a", None][: number % 3],
        "spot": {"x": 1.5, "y": None}, "fresh": number % 2 == 0, "amount": number * 0.5, "ref": uuid.UUID(int=number),
        "doc": '{"a": [1, null]}', "raw": b"\x00a", "small": number % 100, "hash": 2**63 + number, "kind": "c",
        "vector": [1.0, 2.0],
    }  # fmt: skip
    return {"id": number} | (dict.fromkeys(KINDS) if number % 7 == 0 else values)


ROWS = [row(number) for number in range(COUNT)]
