"""The log of one table or catalog as items, and the place of all logs of an instance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import DamagedError, UnsafeStoreError
from lakebed.log.dynamodb.client import ABSENT, DynamoTable, until_clear
from lakebed.log.floor import check_rise, decode_floor, encode_floor, settled
from lakebed.log.stamps import from_us, to_us
from lakebed.storage.contract import PutOutcome
from lakebed.storage.digests import digest_bytes
from lakebed.storage.whole import check_get, check_put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

PART_BYTES = 350 * 1024
"""An item of 400 KB counts its names and other attributes as well."""


@dataclass(frozen=True, slots=True)
class DynamoLog:
    """A :class:`~lakebed.log.backend.LogBackend` on the items of one log."""

    table: DynamoTable
    name: str
    _newest: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    """The newest entry that this process created, and the latest stamp that it has seen here."""

    def create(self, number: int, data: bytes) -> PutOutcome:
        """Put entry ``number`` if there is none."""
        check_put(self._title(number), data)
        action = f"write entry {number} of {self.name} to"
        item: dict[str, Any] = {"log": {"S": self.name}, "number": {"N": str(number)}}
        if len(data) <= PART_BYTES:
            item["data"] = {"B": data}
        else:
            item["parts"] = {"S": self._put_parts(action, data)}
        stored_us = max(to_us(self.table.now(anew=False)), self._newest.get("seen_us", 0))
        item["stored_us"] = {"N": str(stored_us)}
        outcome = self.table.put(action, item, ABSENT, {})
        if outcome is PutOutcome.CREATED:
            self._newest.update(number=number, stored_us=stored_us, seen_us=stored_us)
        return outcome

    def get(self, number: int) -> bytes | None:
        """The bytes of an entry; None: there is none."""
        item = self.table.item(self.name, number)
        if item is None:
            return None
        self._newest["seen_us"] = max(self._newest.get("seen_us", 0), int(item["stored_us"]["N"]))
        if "parts" not in item:
            return bytes(item["data"]["B"])
        data = bytearray()
        for part in self.table.query(f"{self.name}/parts/{item['parts']['S']}"):
            data += bytes(part["data"]["B"])
            check_get(self._title(number), len(data))
        if digest_bytes(bytes(data)) != item["parts"]["S"]:
            raise DamagedError(f"{self._title(number)} lacks a part: restore the table")
        return bytes(data)

    def stamp(self, number: int) -> datetime | None:
        """When the entry was stored; None: there is none."""
        item = self.table.item(self.name, number, ("stored_us",))
        return from_us(int(item["stored_us"]["N"])) if item else None

    def known_stamp(self, number: int) -> datetime | None:
        """That of the newest entry of this process; None: ask."""
        return from_us(self._newest["stored_us"]) if self._newest.get("number") == number else None

    def now(self) -> datetime:
        """DynamoDB's clock."""
        return self.table.now()

    def numbers(self) -> Iterator[int]:
        """The numbers of all entries, ascending."""
        for item in self.table.query(self.name, ("number",)):
            yield int(item["number"]["N"])

    def floor(self) -> int:
        """The number up to which entries may be deleted; 0: it was never raised."""
        return decode_floor(self._floor_data(), self.name)

    def known_floor(self, number: int) -> int | None:  # noqa: ARG002 - as the contract has it
        """No put reads another item."""
        return None

    def keeps_floor(self) -> bool:
        """A conditional put is a compare-and-set."""
        return True

    def raise_floor(self, expected: int, to: int) -> bool:
        """Raise the floor if it is the expected one: a read and a conditional put."""
        check_rise(expected, to)
        found = self._floor_data()
        if decode_floor(found, self.name) != expected:
            return False
        item = {"log": {"S": f"{self.name}/floor"}, "number": {"N": "0"}, "data": {"B": encode_floor(to)}}
        same = (ABSENT, {}) if found is None else ("#data = :found", {":found": {"B": found}})
        raise_once = lambda: self.table.put(f"raise the floor of {self.name} in", item, *same)  # noqa: E731
        return settled(raise_once, lambda: self.floor() == to, self.name)

    def remove(self, numbers: Iterable[int]) -> None:
        """Delete the items of entries, and their parts."""
        doomed = set(numbers)
        if not doomed:
            return
        keys: list[tuple[str, int]] = []
        for item in self.table.query(self.name, ("number", "parts"), between=(min(doomed), max(doomed))):
            number = int(item["number"]["N"])
            if number not in doomed:
                continue
            keys.append((self.name, number))
            if "parts" in item:
                parts = f"{self.name}/parts/{item['parts']['S']}"
                keys += [(parts, int(part["number"]["N"])) for part in self.table.query(parts, ("number",))]
        self.table.delete(keys)
        if self._newest.get("number") in doomed:
            del self._newest["number"]

    def foreign(self) -> Iterator[str]:
        """Nothing: an item of a log is an entry."""
        return iter(())

    def _title(self, number: int) -> str:
        return f"entry {number} of {self.name} in {self.table.url}"

    def _floor_data(self) -> bytes | None:
        item = self.table.item(f"{self.name}/floor", 0)
        return None if item is None else bytes(item["data"]["B"])

    def _put_parts(self, action: str, data: bytes) -> str:
        """Put the parts of a large entry; returns the digest that they lie under. To put them again changes nothing."""
        digest = digest_bytes(data)
        log = {"S": f"{self.name}/parts/{digest}"}
        for number, start in enumerate(range(0, len(data), PART_BYTES)):
            item = {"log": log, "number": {"N": str(number)}, "data": {"B": data[start : start + PART_BYTES]}}
            until_clear(lambda item=item: self.table.put(action, item, None, {}), self.table)  # type: ignore[misc]
        return digest


@dataclass(frozen=True, slots=True)
class DynamoLogs:
    """A :class:`~lakebed.log.backend.LogPlace`: the logs of one instance in a table that may hold others'."""

    table: DynamoTable
    instance: str

    def open(self, prefix: str) -> DynamoLog:
        """The log of that prefix."""
        return DynamoLog(self.table, f"{self.instance}/{prefix}")

    def prefixes(self) -> Iterator[str]:
        """The prefixes of all logs of the instance: a scan of the whole table."""
        own = f"{self.instance}/"
        values = {":own": {"S": own}, ":one": {"N": "1"}}
        names = {"#log": "log", "#number": "number"}
        condition = "begins_with(#log, :own) AND #number >= :one AND attribute_exists(stored_us)"
        seen = set()
        for item in self.table.pages(
            "scan",
            FilterExpression=condition,
            ProjectionExpression="#log",
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        ):
            prefix = item["log"]["S"].removeprefix(own)
            if prefix not in seen and not prefix.startswith(".probe/"):
                seen.add(prefix)
                yield prefix

    def check(self) -> None:
        """Make the table if it is not there, and try it out.

        Raises:
            UnsafeStoreError: two racing entries would both be stored.
            StorageError: it cannot be reached or written.
        """
        self.table.make()
        log = self.open(f".probe/{clock.random_token()}")
        try:
            first = until_clear(lambda: log.create(1, b"first"), self.table)
            second = until_clear(lambda: log.create(1, b"second"), self.table)
            if (first, second) != (PutOutcome.CREATED, PutOutcome.EXISTS) or log.get(1) != b"first":
                raise UnsafeStoreError(
                    f"{self.table.url} is not safe for commits: it does not keep attribute_not_exists",
                    url=self.table.url,
                )
        finally:
            log.remove([1])
