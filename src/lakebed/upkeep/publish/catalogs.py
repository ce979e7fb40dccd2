"""Points tables of other catalogs at publications: :func:`push`.

A catalog is one of PyIceberg's configuration, of the types SQL, Glue and REST. Its table names our metadata file and no
copy of it, so it shows exactly what is published; a commit by PyIceberg would write metadata of the catalog's own.

* A table that is not there is registered, create-if-absent.
* One that names an earlier publication is replaced only if it still names it: by a conditional update in SQL, by the
  version of the table in Glue. REST has no condition for this. Its server replaces atomically what it has, and a commit
  of another program between our look and that is lost from the catalog.
* One that names a later publication stays, since another process pushed it.
* One that names anything else has a commit of another program, or is another table: it is refused.

Core types: :class:`Target`, :class:`CatalogEntry`. Errors: UsageError for a catalog that is not configured, or of
another type; DamagedError for a table of others; ContentionError; StorageError if the catalog fails. Source:
docs/open.md; decision 0075.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.errors import Code, Error
from lakebed.model.checks import shown
from lakebed.model.files import metadata_folder, parse_metadata_name
from lakebed.model.foreign_errors import error_text, optional_imports, translate_errors
from lakebed.storage.retries import attempts

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.glue import GlueCatalog
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.catalog.sql import SqlCatalog

    from lakebed.upkeep.publish.run import Published

ATTEMPTS_MAX = 5
"""Changes of the catalog's table that others may make meanwhile."""

NAMESPACE = "default"

Identifier = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A catalog, by its name in PyIceberg's configuration, and the namespace of the tables in it."""

    catalog: str
    namespace: Identifier = (NAMESPACE,)

    @classmethod
    def parse(cls, text: str) -> Target:
        """Return the target of ``CATALOG`` or ``CATALOG.NAMESPACE``, as in ``prod.lake``. Raises UsageError."""
        catalog, *namespace = text.split(".")
        if not all((catalog, *namespace)):
            raise Code.ARGUMENT_INVALID(f"{shown(text)} is not CATALOG or CATALOG.NAMESPACE, such as prod.lake")
        return cls(catalog, tuple(namespace) or (NAMESPACE,))

    def __str__(self) -> str:
        return ".".join((self.catalog, *self.namespace))


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """What a catalog's table names now; ``changed`` is False if it named this or a later publication before."""

    catalog: str
    table: str
    number: int
    metadata_location: str
    changed: bool


def push(published: Published, name: str, target: Target) -> CatalogEntry:
    """Let the table ``name`` of the target's namespace name a publication.

    Raises UsageError, DamagedError, ContentionError, StorageError.
    """
    identifier = (*target.namespace, name)
    catalog = _load(target)
    with translate_errors(lambda error: _failed(target, error)):
        entry = _entry_of(catalog, identifier, target)
        for _ in attempts(ATTEMPTS_MAX):
            known = entry.location()
            number = 0 if known is None else _own_number(published, known, target, name)
            if number >= published.number:
                return CatalogEntry(target.catalog, ".".join(identifier), number, str(known), changed=False)
            if known is None:
                done = _register(catalog, identifier, published.metadata_location)
            else:
                done = entry.replace(known, published)
            if done:
                location = published.metadata_location
                return CatalogEntry(target.catalog, ".".join(identifier), published.number, location, changed=True)
    raise Code.PUBLICATION_CONTENDED(f"table {target}.{name} was changed by others {ATTEMPTS_MAX} times; try again")


def _load(target: Target) -> Catalog:
    with optional_imports():
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchPropertyException, NotInstalledError

    def not_opened(error: BaseException) -> Error:
        if not isinstance(error, (ValueError, ImportError, NoSuchPropertyException, NotInstalledError)):
            return _failed(target, error)
        return Code.ARGUMENT_INVALID(
            f"catalog {shown(target.catalog)} cannot be opened: {error_text(error)}; catalogs are configured in "
            ".pyiceberg.yaml or by variables such as PYICEBERG_CATALOG__PROD__URI"
        )

    with translate_errors(not_opened):
        return load_catalog(target.catalog)


def _failed(target: Target, error: BaseException) -> Error:
    return Code.STORE_UNAVAILABLE(f"catalog {target.catalog} failed: {error_text(error)}", transient=True)


def _own_number(published: Published, location: str, target: Target, name: str) -> int:
    """Return the number of the publication at a location. Raises DamagedError if it is none of this table."""
    folder = published.metadata_location.rpartition("/")[0]
    found, _, file = location.rpartition("/")
    number = parse_metadata_name(published.table, f"{metadata_folder(published.table)}/{file}")
    if found != folder or number is None:
        raise Code.PUBLICATION_FOREIGN(
            f"table {target}.{name} names {shown(location)}, which Lakebed did not publish: drop it from the catalog, "
            "without its files, and push again; other programs may only read a published table",
            name=location,
        )
    return number


def _register(catalog: Catalog, identifier: Identifier, location: str) -> bool:
    """Register a table; False if there is one meanwhile."""
    from pyiceberg.exceptions import TableAlreadyExistsError

    catalog.create_namespace_if_not_exists(identifier[:-1])
    try:
        catalog.register_table(identifier, location)
    except TableAlreadyExistsError:
        return False
    return True


class _Entry(Protocol):
    """A table of a catalog, as the name of a metadata file, which need not exist any more."""

    def location(self) -> str | None:
        """Return the metadata file that the table names; None if there is no such table."""

    def replace(self, known: str, published: Published) -> bool:
        """Let the table name a publication in place of the known file; False if it does not name that any more."""


def _entry_of(catalog: Catalog, identifier: Identifier, target: Target) -> _Entry:
    # By name, because the modules of the other types may lack what they import.
    kinds: dict[str, Any] = {"SqlCatalog": _SqlEntry, "GlueCatalog": _GlueEntry, "RestCatalog": _RestEntry}
    kind = kinds.get(type(catalog).__name__)
    if kind is None:
        raise Code.ARGUMENT_INVALID(
            f"catalog {target.catalog} is a {type(catalog).__name__}; tables can be pushed to SQL, Glue and REST"
        )
    entry: _Entry = kind(catalog, identifier)
    return entry


class _SqlEntry:
    """A row of ``iceberg_tables``, the table that all SQL and JDBC catalogs of Iceberg have."""

    def __init__(self, catalog: SqlCatalog, identifier: Identifier) -> None:
        from pyiceberg.catalog.sql import IcebergTables

        self._engine = catalog.engine
        self._row = IcebergTables
        self._is_it = (
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == ".".join(identifier[:-1]),
            IcebergTables.table_name == identifier[-1],
        )

    def location(self) -> str | None:
        from sqlalchemy import select

        with self._engine.connect() as connection:
            return connection.scalar(select(self._row.metadata_location).where(*self._is_it))

    def replace(self, known: str, published: Published) -> bool:
        from sqlalchemy import update

        change = update(self._row).where(*self._is_it, self._row.metadata_location == known)
        with self._engine.begin() as connection:
            values = {"metadata_location": published.metadata_location, "previous_metadata_location": known}
            return connection.execute(change.values(**values)).rowcount == 1


class _GlueEntry:
    """A table of AWS Glue, changed only if it has the version that was read."""

    def __init__(self, catalog: GlueCatalog, identifier: Identifier) -> None:
        self._catalog = catalog
        self._database, self._name = catalog.identifier_to_database_and_table(identifier)
        self._known: Any = None

    def location(self) -> str | None:
        client = self._catalog.glue
        try:
            self._known = client.get_table(DatabaseName=self._database, Name=self._name)["Table"]
        except client.exceptions.EntityNotFoundException:
            return None
        return str(self._known.get("Parameters", {}).get("metadata_location"))

    def replace(self, known: str, published: Published) -> bool:
        from pyiceberg.catalog.glue import _construct_table_input
        from pyiceberg.table.metadata import TableMetadataUtil

        client, location = self._catalog.glue, published.metadata_location
        metadata = TableMetadataUtil.parse_raw(published.metadata.decode())
        table = _construct_table_input(self._name, location, {}, metadata, self._known, known)
        try:
            client.update_table(
                DatabaseName=self._database, TableInput=table, VersionId=self._known["VersionId"], SkipArchive=True
            )
        except client.exceptions.ConcurrentModificationException:
            return False
        return True


class _RestEntry:
    """A table of a REST catalog, whose server replaces it without a condition."""

    def __init__(self, catalog: RestCatalog, identifier: Identifier) -> None:
        self._catalog = catalog
        self._identifier = identifier

    def location(self) -> str | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return str(self._catalog.load_table(self._identifier).metadata_location)
        except NoSuchTableError:
            return None

    def replace(self, known: str, published: Published) -> bool:  # noqa: ARG002 - there is no condition
        self._catalog.register_table(self._identifier, published.metadata_location, overwrite=True)
        return True
