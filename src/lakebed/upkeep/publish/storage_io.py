"""PyIceberg's files over Lakebed's storage, so that its writers and readers of manifests use the storage contract.

Objects are written whole, create-if-absent, under names that are used once. A location is the URI of an object as other
engines read it: that of the storage, without percent-encoding, as Apache Iceberg has locations.

Errors: those of the storage; StorageError if an object is missing.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO, InputFile, OutputFile

from lakebed.errors import Code
from lakebed.storage.retries import is_stored
from lakebed.upkeep.publish.record import location_of

if TYPE_CHECKING:
    from pyiceberg.io import InputStream, OutputStream

    from lakebed.storage.contract import Storage


class StorageIO(FileIO):
    """The objects of a storage by their locations."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage
        self.root = location_of(storage, "x")[:-1]

    def name_of(self, location: str) -> str:
        """Return the object at a location. Raises DamagedError for a location outside of the instance."""
        if not location.startswith(self.root):
            raise Code.PUBLICATION_DAMAGED(
                f"the metadata name {location}, which is not below {self.root}: they were written elsewhere",
                name=location,
            )
        return location.removeprefix(self.root)

    def new_input(self, location: str) -> StoredInput:
        """Return an object to read."""
        return StoredInput(location, self._storage, self.name_of(location))

    def new_output(self, location: str) -> StoredOutput:
        """Return an object to write once."""
        return StoredOutput(location, self._storage, self.name_of(location))

    def read(self, location: str) -> bytes:
        """Return the bytes of an object. Raises DamagedError if there is none."""
        return self.new_input(location).data()

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete an object."""
        self._storage.delete([self.name_of(location if isinstance(location, str) else location.location)])


class StoredInput(InputFile):
    """An object, read whole when it is opened."""

    def __init__(self, location: str, storage: Storage, name: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._name = name

    def data(self) -> bytes:
        """Return the bytes. Raises DamagedError if there are none."""
        data = self._storage.get(self._name)
        if data is None:
            raise Code.PUBLICATION_DAMAGED(
                f"{self._name} is missing, which the published metadata of the table name: set publish=none, collect "
                "garbage, and set publish=iceberg to publish the table anew",
                name=self._name,
            )
        return data

    def __len__(self) -> int:
        """Return the size in bytes."""
        return len(self.data())

    def exists(self) -> bool:
        """Return whether the object exists."""
        return self._storage.last_modified(self._name) is not None

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's interface
        """Return the bytes."""
        return io.BytesIO(self.data())


class _Buffer(io.BytesIO):
    """Bytes that are put when they are complete."""

    def __init__(self, output: StoredOutput) -> None:
        super().__init__()
        self._output = output

    def close(self) -> None:
        if not self.closed:
            self._output.put(self.getvalue())
        super().close()


class StoredOutput(OutputFile):
    """An object that is put when its stream is closed."""

    def __init__(self, location: str, storage: Storage, name: str) -> None:
        super().__init__(location)
        self._storage = storage
        self._name = name
        self._size_bytes = 0

    def put(self, data: bytes) -> None:
        """Put the object. Raises StorageError if another one has its name, which is random."""
        if not is_stored(self._storage, self._name, data):
            raise Code.STORE_UNAVAILABLE(f"{self._name} exists, with other bytes", name=self._name, transient=True)
        self._size_bytes = len(data)

    def __len__(self) -> int:
        """Return the size in bytes, once it was put."""
        return self._size_bytes

    def exists(self) -> bool:
        """Return whether the object exists."""
        return self._storage.last_modified(self._name) is not None

    def to_input_file(self) -> InputFile:
        """Return the object to read."""
        return StoredInput(self.location, self._storage, self._name)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's interface
        """Return a stream; the object exists once it was closed."""
        return _Buffer(self)
