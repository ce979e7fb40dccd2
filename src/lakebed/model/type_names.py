"""Names of types: one parser, one printer. Pure.

``parse_name`` reads Arrow's names and a few short ones: ``int64``, ``uuid``, ``decimal(10, 2)``, ``timestamp[us,
tz=UTC]``, ``list<string>``, ``fixed_size_list<float>[3]``, ``struct<x: double, y: double not null>``, ``map<string,
int64>``, ``dictionary<string>``. ``name_of`` is the inverse. The name of a struct member is quoted as in JSON unless it
is a plain word: ``struct<"first name": string>``.

Errors: UsageError for a name that is not a type.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.documents import load
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

UUID, JSON = pa.uuid(), pa.json_()

PLAIN = {
    str(kind): kind
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.float16(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(),
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
        pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.null(),
    )
} | {"uuid": UUID, "json": JSON}  # fmt: skip
_ALIASES = {
    "int": "int32", "long": "int64", "str": "string", "utf8": "string", "bytes": "binary", "boolean": "bool",
    "date": "date32[day]", "date32": "date32[day]", "date64": "date32[day]", "date64[ms]": "date32[day]",
    "float32": "float", "float64": "double", "half_float": "halffloat", "float16": "halffloat",
    "large_string": "string", "large_utf8": "string", "string_view": "string", "utf8_view": "string",
    "large_binary": "binary", "binary_view": "binary", "time": "time64[us]", "timestamp": "timestamp[us]",
}  # fmt: skip
_TOKEN = re.compile(
    r"\s*(?:(?P<time>(?:timestamp|time32|time64|date32|date64)\[[^\]]*\])|(?P<quoted>\"(?:[^\"\\]|\\.)*\")|"
    r"(?P<word>\w+)|(?P<mark>[<>()\[\],:=]))"
)
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:,\s*(?:tz=)?([^\s\]]+))?\]")
_DECIMALS = {"decimal128": pa.decimal128, "decimal256": pa.decimal256}
_DIGITS_OF_128 = 38
_WORD = re.compile(r"[A-Za-z_]\w*")


def parse_name(text: str) -> pa.DataType:
    """Return the type of this name. Raises UsageError if there is none."""
    found = PLAIN.get(_ALIASES.get(text, text))
    if found is not None:
        return found
    reader = _NameParser(text)
    kind = reader.kind()
    if reader.at < len(reader.tokens):
        raise reader.refused()
    return kind


def name_of(kind: pa.DataType) -> str:
    """Return the name of a type; :func:`parse_name` is the inverse."""
    if kind in (UUID, JSON):
        return "uuid" if kind == UUID else "json"
    if pa.types.is_fixed_size_list(kind):
        return f"fixed_size_list<{name_of(kind.value_type)}>[{kind.list_size}]"
    if pa.types.is_list(kind):
        return f"list<{name_of(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{name_of(kind.key_type)}, {name_of(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(map(_member, kind))}>"
    if pa.types.is_dictionary(kind):
        index = "" if kind.index_type == pa.int32() else f", indices={kind.index_type}"
        return f"dictionary<{name_of(kind.value_type)}{index}{', ordered=1' if kind.ordered else ''}>"
    return str(kind)


def words(kind: pa.DataType) -> str:
    """Return Arrow's own name of a type, for messages and the log; it is long for a dictionary."""
    return name_of(kind) if pa.types.is_dictionary(kind) else str(kind)


def _member(member: pa.Field) -> str:
    name = member.name if _WORD.fullmatch(member.name) else json.dumps(member.name)
    return f"{name}: {name_of(member.type)}{'' if member.nullable else ' not null'}"


class _NameParser:
    """Reads a name by recursive descent; ``at`` is the next token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        end = 0
        while end < len(text.rstrip()):
            match = _TOKEN.match(text, end)
            if match is None:
                raise self.refused()
            group = match.lastgroup or ""
            self.tokens.append((group, match[group]))
            end = match.end()

    def refused(self, reason: str = "") -> Exception:
        """Return the error for the whole name."""
        why = f" ({reason})" if reason else ""
        return Code.TYPE_INVALID(
            f"not a type: {shown(self.text)}{why}; Arrow's names are used, such as int64, string, uuid, "
            f"decimal128(10, 2), timestamp[us, tz=UTC], list<string>{did_you_mean(self.text, [*PLAIN, *_ALIASES])}"
        )

    def kind(self) -> pa.DataType:
        """Return the type that begins at the next token."""
        group, word = self._next()
        nested: dict[str, Callable[[], pa.DataType]] = {
            "list": self._list, "fixed_size_list": self._fixed_size_list, "struct": self._struct, "map": self._map,
            "dictionary": self._dictionary,
        }  # fmt: skip
        if group == "word" and word in nested and self._is("<"):
            return nested[word]()
        if group == "word" and (word in _DECIMALS or word == "decimal") and self._is("("):
            return self._decimal(word)
        if word == "fixed_size_binary" and self._is("["):
            return self._fixed_size_binary()
        if match := _TIMESTAMP.fullmatch(word):
            return pa.timestamp(match[1], match[2])
        found = PLAIN.get(_ALIASES.get(word, word)) if group != "quoted" else None
        if found is None:
            raise self.refused()
        return found

    def _list(self) -> pa.DataType:
        self._take("<")
        self._skip_name("item", "element")
        kind = self.kind()
        self._take(">")
        return pa.list_(kind)

    def _fixed_size_list(self) -> pa.DataType:
        kind = self._list().value_type
        return pa.list_(kind, self._bracketed(0))

    def _struct(self) -> pa.DataType:
        self._take("<")
        members = [self._named()]
        while self._is(","):
            self._take(",")
            members.append(self._named())
        self._take(">")
        return pa.struct(members)

    def _named(self) -> pa.Field:
        group, name = self._next()
        if group == "quoted":
            name = load(name)
        elif group != "word":
            raise self.refused()
        self._take(":")
        kind = self.kind()
        nullable = not self._is("not")
        if not nullable:
            self._take("not")
            self._take("null")
        return pa.field(name, kind, nullable)

    def _map(self) -> pa.DataType:
        self._take("<")
        key = self.kind()
        self._take(",")
        item = self.kind()
        self._take(">")
        return pa.map_(key, item)

    def _dictionary(self) -> pa.DataType:
        self._take("<")
        self._skip_name("values", sign="=")
        kind, index, ordered = self.kind(), pa.int32(), False
        while self._is(","):
            self._take(",")
            _, option = self._next()
            self._take("=")
            if option == "indices":
                index = self.kind()
            elif option == "ordered":
                ordered = self._next()[1] in ("1", "true")
            else:
                raise self.refused()
        self._take(">")
        try:
            return pa.dictionary(index, kind, ordered)
        except (TypeError, pa.ArrowException) as error:
            raise self.refused(str(error)) from error

    def _decimal(self, word: str) -> pa.DataType:
        self._take("(")
        precision = self._number()
        scale = 0
        if self._is(","):
            self._take(",")
            scale = self._number()
        self._take(")")
        make = _DECIMALS.get(word, pa.decimal256 if precision > _DIGITS_OF_128 else pa.decimal128)
        try:
            return make(precision, scale)
        except ValueError as error:
            raise self.refused(str(error)) from error

    def _fixed_size_binary(self) -> pa.DataType:
        width = self._bracketed(1)
        return pa.binary(width)

    def _bracketed(self, least: int) -> int:
        self._take("[")
        number = self._number()
        self._take("]")
        if not least <= number < 2**31:
            raise self.refused(f"a size is {least} to {2**31 - 1:,}")
        return number

    def _number(self) -> int:
        _, word = self._next()
        if not word.isdecimal():
            raise self.refused()
        return int(word)

    def _skip_name(self, *names: str, sign: str = ":") -> None:
        ahead = [text for _, text in self.tokens[self.at : self.at + 2]]
        if len(ahead) == 2 and ahead[0] in names and ahead[1] == sign:
            self.at += 2

    def _is(self, text: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at][1] == text

    def _take(self, text: str) -> None:
        if not self._is(text):
            raise self.refused()
        self.at += 1

    def _next(self) -> tuple[str, str]:
        if self.at == len(self.tokens):
            raise self.refused()
        self.at += 1
        return self.tokens[self.at - 1]
