"""Finds the format of a file: by its first bytes if it is a binary format, else by its name.

Core types: :class:`FileFormat`. Errors: UsageError for an unsupported format, DamagedError for a file whose content
does not match its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from lakebed.errors import Code
from lakebed.files.formats.input_file import COMPRESSED_SUFFIXES, InputFile, reading
from lakebed.files.formats.reading_options import ReadingOptions


class FileFormat(StrEnum):
    """The format of a file; values are names for people."""

    PARQUET = "Parquet"
    IPC_FILE = "an Arrow file"
    IPC_STREAM = "an Arrow stream"
    ORC = "ORC"
    CSV = "CSV"
    JSON = "JSON"

    @property
    def is_text(self) -> bool:
        """Whether its values have no types."""
        return self in (FileFormat.CSV, FileFormat.JSON)


_MAGIC = (
    (b"PAR1", FileFormat.PARQUET),
    (b"ARROW1", FileFormat.IPC_FILE),
    (b"\xff\xff\xff\xff", FileFormat.IPC_STREAM),
    (b"ORC", FileFormat.ORC),
)
_TEXT_SUFFIXES = {
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".tab": FileFormat.CSV,
    ".psv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
}
_BINARY_SUFFIXES = (".parquet", ".parq", ".pq", ".arrow", ".arrows", ".feather", ".ipc", ".orc")
_PLAIN = (*_TEXT_SUFFIXES, *_BINARY_SUFFIXES)
SUFFIXES = (*_PLAIN, *(f"{name}{end}" for name in _TEXT_SUFFIXES for end in COMPRESSED_SUFFIXES))
"""Suffixes of the names of files that are found in a folder."""

_TEXT_START = b"\t\n\r !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"


def format_of(file: InputFile, options: ReadingOptions) -> FileFormat:
    """Return the format. Raises NotFoundError, StorageError, UsageError (unknown format), DamagedError."""
    with reading(file):
        start, _ = file.sample(64)
        packed = file.compression() is not None
    found = None if packed else next((kind for magic, kind in _MAGIC if start.startswith(magic)), None)
    if found is not None and b"\0" not in start and all(byte in _TEXT_START for byte in start):
        # Text that begins with the letters of a magic number, for example in the name of a column.
        found = None
    named = _TEXT_SUFFIXES.get(file.suffix)
    given = options.format
    if given is not None:
        return _given_format(file, given, found)
    if named is not None:
        if found is not None:
            raise Code.SOURCE_UNSUPPORTED(
                f"{file} is {found.value} by its content, and not {named.value}: rename it, or give the format",
                source=str(file),
            )
        return named
    if found is not None:
        return found
    if file.suffix in _BINARY_SUFFIXES:
        lacks = "does not have the header of such a file" if start else "is empty"
        raise Code.SOURCE_DAMAGED(f"{file} is named {file.suffix} but {lacks}", name=str(file))
    if not file.suffix:
        # Standard input, or a name without a known suffix.
        return FileFormat.JSON if start.lstrip()[:1] in (b"{", b"[") else FileFormat.CSV
    if start.startswith(b"PK\x03\x04"):
        raise Code.SOURCE_UNSUPPORTED(
            f"{file} is an Excel or ZIP file: unpack it, or save it as CSV (gzip, Zstandard, bzip2 and xz are read as "
            "they are)",
            source=str(file),
        )
    raise Code.SOURCE_UNSUPPORTED(
        f"{file}: neither Parquet, Arrow IPC nor ORC by its content, and not named .csv, .tsv or .jsonl; if it is "
        "text, give its format (--format csv)",
        source=str(file),
    )


def not_blank(files: Sequence[InputFile], options: ReadingOptions) -> Sequence[InputFile]:
    """Return the files without blank text files; the first file if all are blank. Raises as :func:`format_of`."""
    if len(files) == 1:
        return files
    return [file for file in files if not (is_blank(file) and format_of(file, options).is_text)] or files[:1]


def is_blank(file: InputFile) -> bool:
    """Return whether the file has no text. Raises as :func:`format_of`."""
    with reading(file):
        return file.is_blank()


def check_options(files: Iterable[tuple[str, FileFormat]], options: ReadingOptions) -> None:
    """Raise UsageError for CSV options if none of the files is CSV.

    ``files`` have names and formats; only as many are read as needed.
    """
    if not options.for_csv:
        return
    first = None
    for name, kind in files:
        if kind is FileFormat.CSV:
            return
        first = first or (name, kind)
    if first is not None:
        name, kind = first
        given = ", ".join(options.for_csv)
        raise Code.ARGUMENTS_CONFLICT(f"{name} is {kind.value}, and these options are for CSV: {given}; leave them out")


def _given_format(file: InputFile, given: str, found: FileFormat | None) -> FileFormat:
    """Return the format given by the user. Raises UsageError if the bytes are of another."""
    wanted = {
        "csv": (FileFormat.CSV,),
        "json": (FileFormat.JSON,),
        "parquet": (FileFormat.PARQUET,),
        "arrow": (FileFormat.IPC_FILE, FileFormat.IPC_STREAM),
        "orc": (FileFormat.ORC,),
    }[given]
    if found is None and wanted[0].is_text:
        return wanted[0]
    if found not in wanted:
        is_it = "is text or of an unknown format" if found is None else f"is {found.value}"
        raise Code.SOURCE_UNSUPPORTED(f"{file} {is_it}, and not {given}", source=str(file))
    return found
