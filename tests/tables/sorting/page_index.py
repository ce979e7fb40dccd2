"""Just enough of Thrift's compact protocol to read the sizes of a Parquet file's pages, which no library here shows.

Source: the Parquet format's OffsetIndex (parquet.thrift) and Thrift's compact protocol specification.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Page:
    bytes: int
    first_row: int


def pages_of(path: Path) -> list[dict[str, list[Page]]]:
    """For each row group, each column's pages, as the offset index has them."""
    data = path.read_bytes()
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = _Reader(data, len(data) - 8 - length).struct()
    groups = []
    for group in footer[4]:
        columns = {}
        for chunk in group[1]:
            index = _Reader(data, chunk[4]).struct()
            columns[b".".join(chunk[3][3]).decode()] = [Page(page[2], page[3]) for page in index[1]]
        groups.append(columns)
    return groups


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return fields
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15)

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == 1
            case 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._zigzag()
            case 7:
                self.position += 8
                return struct.unpack("<d", self.data[self.position - 8 : self.position])[0]
            case 8:
                length = self._varint()
                self.position += length
                return self.data[self.position - length : self.position]
            case 9:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._varint()
                # Booleans in a list take a byte each.
                return [self._byte() if head & 15 in (1, 2) else self._value(head & 15) for _ in range(count)]
            case 12:
                return self.struct()
            case _:
                raise AssertionError(kind)

    def _byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
