"""A data file as log entries store it. Pure."""

from __future__ import annotations

from msgspec import Struct

from lakebed.model.files import DataFile
from lakebed.state.fields import Hex, Id, Positive, Whole


class FileDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A data file as it is stored."""

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
        """The document of a file."""
        return cls(
            bounds=file.bounds.hex(),
            markers=file.markers,
            id=file.id,
            job=file.job,
            rows=file.rows,
            size_bytes=file.size_bytes,
            min_key=file.min_key.hex(),
            max_key=file.max_key.hex(),
            schema_version=file.schema_version,
            last_modified_us=file.last_modified_us,
            digest=file.digest,
            footer_bytes=file.footer_bytes,
            footer_digest=file.footer_digest,
        )

    def value(self) -> DataFile:
        """The file."""
        return DataFile(
            self.id,
            self.job,
            self.rows,
            self.size_bytes,
            bytes.fromhex(self.min_key),
            bytes.fromhex(self.max_key),
            self.schema_version,
            self.last_modified_us,
            self.digest,
            self.footer_bytes,
            self.footer_digest,
            bytes.fromhex(self.bounds),
            self.markers,
        )
