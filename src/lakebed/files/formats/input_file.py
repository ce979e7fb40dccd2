"""Files named by users, as bytes: local, on an object store, or standard input; decompressed if needed.

Compression (gzip, bzip2, Zstandard, xz) is recognised by the first bytes, whatever the name. :func:`reading` converts
the errors of other libraries to those of Lakebed.

Core types: :class:`InputFile`. Errors name the file: NotFoundError, StorageError (unreadable), DamagedError.
"""

from __future__ import annotations

import codecs
import contextlib
import lzma
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code, NotFoundError
from lakebed.model.checks import check_text

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage
    from lakebed.storage.external import ExternalFiles

_COMPRESSED = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bz2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\0", "xz"),
)
_PIECE_BYTES = 1024 * 1024
BLANK_BYTES = 4096
"""Maximum size of a file that has only white space."""
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
COMPRESSED_SUFFIXES = (".gz", ".bz2", ".zst", ".xz")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file: ``name`` as given by the user, and its path, in ``files`` if it is on a store.

    ``part`` has two positions in an uncompressed file: :meth:`open` then returns the lines that begin at or after the
    first and before the second.
    """

    name: str
    path: str
    files: ExternalFiles | None = field(default=None, repr=False)
    part: tuple[int, int] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def identity(self) -> str:
        """The same for all names of the file (:func:`lakebed.storage.external.identity_of`)."""
        from lakebed.storage.external import identity_of

        return identity_of("" if self.files is None else self.name, self.path)

    @property
    def suffix(self) -> str:
        """The suffix of the name in lower case, without that of a compression."""
        path = PurePosixPath(self.path.lower())
        return path.with_suffix("").suffix if path.suffix in COMPRESSED_SUFFIXES else path.suffix

    def open_bytes(self) -> Any:
        """Open the stored bytes as an Arrow file that can seek."""
        if self.files is not None:
            return self.files.open(self.path)
        if Path(self.path).is_dir():
            raise IsADirectoryError(21, "it is a folder", self.path)
        return pa.OSFile(self.path)

    def compression(self) -> str | None:
        """Return the compression by the first bytes; None for none."""
        with self.open_bytes() as file:
            start = file.read(6)
        return next((codec for magic, codec in _COMPRESSED if start.startswith(magic)), None)

    def open(self) -> Any:
        """Open the decompressed bytes as an Arrow file that is read once from its beginning."""
        if self.part is not None:
            file = self.open_bytes()
            begin, end = (_line_from(file, position) for position in self.part)
            return file.get_stream(begin, end - begin)
        codec = self.compression()
        if codec is None:
            return self.open_bytes()
        if codec == "xz":
            return pa.PythonFile(lzma.open(self.open_bytes()), mode="r")  # type: ignore[call-overload,unused-ignore]
        return pa.CompressedInputStream(self.open_bytes(), codec)

    def sample(self, size: int) -> tuple[bytes, bool]:
        """Return the first ``size`` bytes, decompressed, and whether they are all."""
        with replace(self, part=None).open() as file:
            data = read_fully(file, size + 1)
        return data[:size], len(data) <= size

    def ending(self, size: int) -> bytes:
        """Return the last ``size`` bytes, decompressed. Reads a compressed file to its end."""
        with self.open() as file:
            if file.seekable():
                file.seek(max(0, file.size() - size))
            data = b""
            while piece := file.read(_PIECE_BYTES):
                data = (data + piece)[-size:]
        return data

    def lines_before(self) -> int:
        """Return the number of lines before the part; 0 for a whole file. Reads them."""
        if self.part is None:
            return 0
        with self.open_bytes() as file, file.get_stream(0, _line_from(file, self.part[0])) as before:
            return _count(before, b"\n")

    def is_empty(self) -> bool:
        """Return whether the part has no line."""
        with self.open() as file:
            return not file.read(1)

    def is_blank(self) -> bool:
        """Return whether the file has only white space, apart from a byte order mark."""
        sample, whole = self.sample(BLANK_BYTES)
        mark = next((mark for mark in _BYTE_ORDER_MARKS if sample.startswith(mark)), b"")
        return whole and not sample.removeprefix(mark).strip()

    def count(self, byte: bytes) -> int:
        """Return the number of occurrences of a byte in the part. Reads it."""
        with self.open() as file:
            return _count(file, byte)


def read_fully(file: Any, size: int) -> bytes:
    """Return the next ``size`` bytes of a file, or up to its end. Reads of compressed files may return fewer."""
    parts: list[bytes] = []
    left = size
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _line_from(file: Any, position: int) -> int:
    """Return the first position from this one on at which a line begins; the end of the file if there is none."""
    if position == 0:
        return 0
    at = position - 1
    file.seek(at)
    while data := file.read(_PIECE_BYTES):
        if (found := bytes(data).find(b"\n")) >= 0:
            return at + found + 1
        at += len(data)
    return at


def _count(file: Any, byte: bytes) -> int:
    count: int = 0
    while data := file.read(_PIECE_BYTES):
        count += data.count(byte)
    return count


def is_remote(text: str) -> bool:
    """Return whether the text is a URL of an object store."""
    return "://" in text and not text.startswith("file://")


def input_file(text: str, home: Storage | None = None) -> InputFile:
    """Return the file of a path or URL; ``home`` is the store of the instance, as for :func:`open_external`.

    Raises UsageError for an invalid URL.
    """
    check_text("path", text)
    from lakebed.storage.external import local_path, open_external

    if not is_remote(text):
        return InputFile(text, local_path(text))
    files, path = open_external(text, home)
    return InputFile(text, path, files)


def spool(stream: IO[bytes], folder: Path, name: str) -> InputFile:
    """Copy a stream to a file in a folder, so that it can be read twice."""
    path = folder / "input"
    with reading(name), path.open("wb") as file:
        shutil.copyfileobj(stream, file, 1024 * 1024)
    return InputFile(name, str(path))


@contextlib.contextmanager
def reading(file: InputFile | str, *, text: bool = False) -> Iterator[None]:
    """Convert errors of reading a file to those of Lakebed; invalid ``text`` is not damage."""
    name = str(file)
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise Code.SOURCE_NOT_FOUND(f"no file {name}", name=name) from error
    except pa.ArrowNotImplementedError as error:
        raise Code.SOURCE_UNPARSABLE(f"{name}: {error}", source=name) from error
    except (pa.ArrowInvalid, pa.ArrowIndexError, pa.ArrowKeyError, pa.ArrowTypeError) as error:
        if text:
            raise Code.SOURCE_UNPARSABLE(f"{name}: {error}", source=name) from error
        raise Code.SOURCE_DAMAGED(f"{name} cannot be read: {error}", name=name) from error
    except UnicodeDecodeError as error:
        # PyArrow decodes names of columns when they are asked for.
        raise Code.SOURCE_DAMAGED(f"{name} cannot be read: it has a name that is not UTF-8", name=name) from error
    except (lzma.LZMAError, EOFError) as error:
        raise Code.SOURCE_DAMAGED(f"{name} cannot be decompressed: {error}", name=name) from error
    except OSError as error:
        if "Couldn't deserialize thrift" in str(error) or "Corrupt" in str(error) or error.errno is None:
            raise Code.SOURCE_DAMAGED(f"{name} cannot be read: {error}", name=name) from error
        raise Code.SOURCE_UNREADABLE(f"{name}: {error.strerror or error}", name=name) from error


def read_text(path: Path) -> str:
    """Return the text of a small file. Raises NotFoundError, StorageError, or UsageError if it is not UTF-8."""
    with reading(str(path)):
        try:
            return path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise Code.SOURCE_UNSUPPORTED(f"{path} is not UTF-8 text", source=str(path)) from error
