"""The types of the fields of stored documents, as docs/format.md lists them.

A document is a ``msgspec.Struct`` whose annotations are these types. It is checked against them before it is written
and while it is read, so a value of a wrong type or range is neither stored nor accepted. The check is strict: ``true``
and ``1.0`` are not whole numbers. A field that a newer version added is ignored; an unknown type of transaction is an
error (:mod:`lakebed.model.state.codec`). Pure.

*A data file as it is stored in log entries. Pure.*
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Self, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from lakebed.errors import Code
from lakebed.model.checks import ID, STORED_MAX, TABLE_NAME, TAG_NAME
from lakebed.model.documents import UNREADABLE
from lakebed.model.files import DataFile
from lakebed.model.keys import EncodedRange

_HEX = ("min_key", "max_key", "bounds")


class FileDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A data file as it is stored: the fields of a DataFile, bytes as hex digits."""

    bounds: Hex = ""
    markers: Whole = 0
    id: Id
    job: Id
    rows: Positive
    size_bytes: Positive
    min_key: Hex
    max_key: Hex
    schema_version: Positive
    last_modified_us: Whole
    digest: str
    footer_bytes: Whole
    footer_digest: str

    @classmethod
    def of(cls, file: DataFile) -> FileDocument:
        """Return the document of a file."""
        values = {name: getattr(file, name) for name in cls.__struct_fields__}
        return cls(**values | {name: values[name].hex() for name in _HEX})

    def value(self) -> DataFile:
        """Return the file of this document."""
        values = asdict(self)
        return DataFile(**values | {name: bytes.fromhex(values[name]) for name in _HEX})


Document = TypeVar("Document")


def _matching(pattern: str) -> Meta:
    # msgspec matches anywhere in the string, and `$` also matches before a final line feed.
    return Meta(pattern=rf"\A(?:{pattern})\Z")


Id = Annotated[str, _matching(ID.pattern)]
Hex = Annotated[str, _matching(r"(?:[0-9a-f]{2})*")]
"""Bytes as hex digits: JSON has no bytes."""

TableName = Annotated[str, _matching(TABLE_NAME.pattern)]
OperationName = Annotated[str, _matching("[a-z]([a-z_-]{0,62}[a-z])?")]
"""The name of an operation. Readers keep those that they do not know: a newer Lakebed may have more."""

FeatureName = Annotated[str, _matching("[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")]
"""The name of a feature of the format, such as ``sql-datafusion-1``."""

TagName = Annotated[str, _matching(TAG_NAME.pattern)]

Whole = Annotated[int, Meta(ge=0, le=STORED_MAX)]
Positive = Annotated[int, Meta(ge=1, le=STORED_MAX)]
_Integer = Annotated[int, Meta(ge=-STORED_MAX, le=STORED_MAX)]
_Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]

Settings = dict[str, _Integer | _Finite | str]
SettingChanges = dict[str, _Integer | _Finite | str | None]
"""Changes of settings; None resets a setting to its default."""

Bounds = tuple[Hex, Hex | None]
"""A key range; None: no end."""


class StoredAsIs(msgspec.Struct, frozen=True, tag_field="type"):
    """A transaction that is stored without conversion."""

    def document(self, _sidecars: object) -> Self:
        """Return self."""
        return self

    def transaction(self, _sidecars: object) -> Self:
        """Return self."""
        return self


def encode_bounds(keys: EncodedRange) -> Bounds:
    """Encode the bounds of a key range as hex digits."""
    return keys.min.hex(), None if keys.max is None else keys.max.hex()


def decode_bounds(bounds: Bounds) -> EncodedRange:
    """Decode bounds: the inverse of :func:`encode_bounds`."""
    low, high = bounds
    return EncodedRange(bytes.fromhex(low), None if high is None else bytes.fromhex(high))


def checked(document: msgspec.Struct) -> dict[str, Any]:
    """Return the document as JSON values. Raises UsageError if a field has a value that its type does not allow."""
    try:
        values: dict[str, Any] = msgspec.to_builtins(document, builtin_types=(bytes,))
        msgspec.convert(values, type(document), builtin_types=(bytes,))
    except UNREADABLE as error:
        name = document.__struct_config__.tag or type(document).__name__
        raise Code.ARGUMENT_INVALID(f"{name}: {error}; nothing was written") from error
    return values


def encode(document: msgspec.Struct) -> bytes:
    """Encode the document as JSON. Raises UsageError for a value not allowed by its type, or invalid UTF-8."""
    checked(document)
    try:
        return msgspec.json.encode(document)
    except UNREADABLE as error:
        raise Code.ARGUMENT_INVALID(f"{document.__struct_config__.tag}: {error}; nothing was written") from error


class _Typed(msgspec.Struct, frozen=True):
    type: str


def decode(document: bytes, decoder: msgspec.json.Decoder[Document], what: str) -> Document:
    """Decode a document that has one of the types of the decoder's union.

    Raises UnsupportedFormatError for any other type, ValidationError or DecodeError for malformed JSON.
    """
    try:
        return decoder.decode(document)
    except msgspec.ValidationError:
        kind = msgspec.json.decode(document, type=_Typed).type
        if kind not in {one.__struct_config__.tag for one in get_args(decoder.type)}:
            raise Code.FORMAT_TOO_NEW(
                f"{what} of type {kind!r}: written by a newer Lakebed; upgrade to read it"
            ) from None
        raise
