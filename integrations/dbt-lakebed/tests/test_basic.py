"""dbt's own tests of an adapter, `dbt.tests.adapter.basic`, with a key for each table."""

import pytest
from dbt.tests.adapter.basic.expected_catalog import base_expected_catalog, expected_references_catalog, no_stats
from dbt.tests.adapter.basic.test_adapter_methods import BaseAdapterMethod
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_docs_generate import BaseDocsGenerate, BaseDocsGenReferences
from dbt.tests.adapter.basic.test_empty import BaseEmpty
from dbt.tests.adapter.basic.test_ephemeral import BaseEphemeral
from dbt.tests.adapter.basic.test_generic_tests import BaseGenericTests
from dbt.tests.adapter.basic.test_incremental import (
    BaseIncremental,
    BaseIncrementalBadStrategy,
    BaseIncrementalNotSchemaChange,
)
from dbt.tests.adapter.basic.test_singular_tests import BaseSingularTests
from dbt.tests.adapter.basic.test_singular_tests_ephemeral import BaseSingularTestsEphemeral
from dbt.tests.adapter.basic.test_snapshot_check_cols import BaseSnapshotCheckCols
from dbt.tests.adapter.basic.test_snapshot_timestamp import BaseSnapshotTimestamp
from dbt.tests.adapter.basic.test_table_materialization import BaseTableMaterialization
from dbt.tests.adapter.basic.test_validate_connection import BaseValidateConnection


def keyed(name, key="id", seed="primary_key"):
    """What the projects of these tests lack: the key of each table."""
    return {"name": name, "models": {"+primary_key": key}, "seeds": {f"+{seed}": key}}


class Keyed:
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return keyed("keyed")


class TestSimpleMaterializations(Keyed, BaseSimpleMaterializations):
    pass


class TestSingularTests(Keyed, BaseSingularTests):
    pass


class TestSingularTestsEphemeral(Keyed, BaseSingularTestsEphemeral):
    pass


class TestEmpty(Keyed, BaseEmpty):
    pass


class TestEphemeral(Keyed, BaseEphemeral):
    pass


class TestIncremental(Keyed, BaseIncremental):
    pass


class TestIncrementalNotSchemaChange(BaseIncrementalNotSchemaChange):
    pass


class TestIncrementalBadStrategy(Keyed, BaseIncrementalBadStrategy):
    pass


class TestGenericTests(Keyed, BaseGenericTests):
    pass


class TestSnapshotCheckCols(Keyed, BaseSnapshotCheckCols):
    pass


class TestSnapshotTimestamp(Keyed, BaseSnapshotTimestamp):
    pass


class TestAdapterMethods(Keyed, BaseAdapterMethod):
    pass


class TestTableMaterialization(BaseTableMaterialization):
    @pytest.fixture(scope="class")
    def project_config_update(self):
        return keyed("keyed", "id,first_name", seed="key")


class TestValidateConnection(BaseValidateConnection):
    pass


class Documented:
    """The catalog that `dbt docs generate` should write, in the types of Lakebed."""

    @pytest.fixture(scope="class")
    def project_config_update(self, unique_schema):
        return {
            **keyed("test"),
            "asset-paths": ["assets", "invalid-asset-paths"],
            "vars": {"test_schema": unique_schema, "alternate_schema": unique_schema + "_test"},
            "seeds": {"+primary_key": "id", "quote_columns": True},
        }

    @pytest.fixture(scope="class")
    def types(self):
        return {
            "role": None,
            "id_type": "bigint",
            "text_type": "varchar",
            "time_type": "timestamp(6)",
            "view_type": "view",
            "table_type": "table",
            "model_stats": no_stats(),
        }


class TestDocsGenerate(Documented, BaseDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project, types):
        return base_expected_catalog(project, **types)


class TestDocsGenReferences(Documented, BaseDocsGenReferences):
    @pytest.fixture(scope="class")
    def project_config_update(self, unique_schema):
        return {
            **keyed("test", "first_name"),
            "seeds": {"+primary_key": "id", "quote_columns": True},
            "asset-paths": ["assets", "invalid-asset-paths"],
            "vars": {"test_schema": unique_schema, "alternate_schema": unique_schema + "_test"},
        }

    @pytest.fixture(scope="class")
    def expected_catalog(self, project, types):
        return expected_references_catalog(project, **types, bigint_type="bigint")
