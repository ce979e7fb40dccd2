"""A data file as it is stored in log entries. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from lakebed.model.files import DataFile
from lakebed.model.state.fields import Hex, Id, Positive, Whole

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
